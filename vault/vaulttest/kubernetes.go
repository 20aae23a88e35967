package vaulttest

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A cluster is the part of a Kubernetes API server that Vault asks: whose token is
// this? It knows the tokens that it has issued and says so only to its reviewer.
type cluster struct {
	URL, CA  string // https, and the certificate of who serves there
	reviewer string

	mu     sync.Mutex
	issued map[string]document // status.user by token
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{reviewer: rand.Text(), issued: map[string]document{}}
	server := httptest.NewTLSServer(http.HandlerFunc(c.review))
	t.Cleanup(server.Close)
	c.URL, c.CA = server.URL, authority{cert: server.Certificate()}.pem()
	return c
}

// token issues what Kubernetes projects into a pod of a service account.
func (c *cluster) token(t *testing.T, namespace, account string) string {
	t.Helper()
	uid, user, now := rand.Text(), "system:serviceaccount:"+namespace+":"+account, time.Now()
	token := signed(t, newKey(t), jwt.MapClaims{"iss": "https://kubernetes.default.svc.cluster.local", "aud": []string{"https://kubernetes.default.svc.cluster.local"},
		"sub": user, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(), "jti": rand.Text(),
		"kubernetes.io": document{"namespace": namespace, "serviceaccount": document{"name": account, "uid": uid}}})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued[token] = document{"username": user, "uid": uid, "groups": []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	return token
}

func (c *cluster) review(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Spec struct {
			Token     string   `json:"token"`
			Audiences []string `json:"audiences"`
		} `json:"spec"`
	}
	if r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || r.Header.Get("Authorization") != "Bearer "+c.reviewer ||
		json.NewDecoder(r.Body).Decode(&asked) != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	c.mu.Lock()
	user, known := c.issued[asked.Spec.Token]
	c.mu.Unlock()
	status := document{"authenticated": known}
	if known {
		status["user"], status["audiences"] = user, asked.Spec.Audiences
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(document{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
}
