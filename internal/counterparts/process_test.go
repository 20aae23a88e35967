package counterparts

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/testhttp"
)

// TestMain lets this binary be the program that the tests below start.
func TestMain(m *testing.M) {
	port := os.Getenv("SERVE_ON")
	if port == "" {
		os.Exit(m.Run())
	}
	fmt.Println(http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		dir, _ := os.Getwd()
		fmt.Fprint(w, strings.Join(append(os.Environ(), "DIR="+dir), "\n"))
	})))
}

func this(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStart(t *testing.T) {
	t.Setenv("LEFT_BEHIND", "1")
	var url, folder string
	t.Run("while the test runs", func(t *testing.T) {
		path := this(t)
		port := start(t, func(home string, port int) program {
			folder = home
			return program{path: path, env: []string{fmt.Sprintf("SERVE_ON=%d", port)}, ready: fmt.Sprintf("http://127.0.0.1:%d/", port)}
		})
		url = fmt.Sprintf("http://127.0.0.1:%d/", port)
		resp, err := testhttp.Client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var text strings.Builder
		if err := resp.Write(&text); err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(text.String())
		if !slices.Contains(lines, "HOME="+folder) || !slices.Contains(lines, "DIR="+folder) || strings.Contains(text.String(), "LEFT_BEHIND") {
			t.Errorf("its surroundings are not its own:\n%s", text.String())
		}
	})
	if resp, err := testhttp.Client.Get(url); err == nil {
		resp.Body.Close()
		t.Error("the program outlives its test")
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("its home outlives the test")
	}
}

func TestStartEnds(t *testing.T) {
	p := program{path: this(t), args: []string{"-no-such-flag"}, ready: "http://127.0.0.1:1/"}
	if err := p.start(t, t.TempDir()); !errors.Is(err, errEnded) {
		t.Errorf("start of a program that ends = %v", err)
	}
	p.path = "/absent"
	if err := p.start(t, t.TempDir()); err == nil || errors.Is(err, errEnded) {
		t.Errorf("start of a program that is absent = %v", err)
	}
}
