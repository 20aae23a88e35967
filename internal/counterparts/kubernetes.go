package counterparts

import "testing"

// Helm is the program that renders charts.
func Helm(t testing.TB) string {
	t.Helper()
	return cached(t, "bin/helm-4.3.2", "test/helm/build.sh")
}

// Kubeconform is the program that holds manifests against schemas of Kubernetes.
func Kubeconform(t testing.TB) string {
	t.Helper()
	return cached(t, "bin/kubeconform-0.8.0", "test/kubeconform/build.sh")
}
