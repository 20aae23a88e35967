package broker_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors lists our packages from the ground up. A package imports only from
// floors below its own; packages on one floor do not know each other. To add a
// package, choose its floor here first.
var floors = [][]string{
	{"fault", "secret"}, // 0: the words
	{"secret/canary"},   //
	{"strictjson", "cache", "process", "ownfile"}, //
	{"trace"}, //
	{"identity", "audit"},
	{"audit/ocsf"}, //
	{"policy", "egress", "store", "seal", "catalogue/schema"}, // 1: what may be; how bytes leave; where rows live; what tools take
	{"policy/policytest", "store/storetest"},                  //
	{"client"},                                                // of the API, for gateways: knows the words and how bytes leave, nothing of the broker
	{"exchange", "mcpclient", "vault", "signin", "ledger", "catalogue", "auditlog"}, // 2: the ways out; what happened, and proof of it; what servers offer
	{"vault/vaulttest"},               //
	{"subject", "grants"},             // 3
	{"session"},                       // 4
	{"operation"},                     // 5: the path
	{"trace/otlp", "doctor"},          //
	{"httpapi", "webui", "mcpfacade"}, // 6
	{"."},                             // 7: the parts put together
	{"cmd/broker", "brokertest"},      //
	{"cmd/demo"},                      //
}

// apart are packages that import nothing of ours: the counterparts, and what tests
// ask them with.
var apart = []string{"internal/testhttp", "internal/testlog", "internal/devidp", "internal/devmcp", "internal/devvault", "internal/devotlp", "internal/realvault", "internal/counterparts", "deploy/vault"}

// sdk is the library of the façade; linked is what the product may hold of it: no client of
// ours speaks by it, see docs/decisions/0002 and 0036.
const sdk = "github.com/modelcontextprotocol/go-sdk/"

var linked = []string{"mcp", "auth", "oauthex", "jsonrpc", "internal/json", "internal/jsonrpc2", "internal/authutil", "internal/mcpgodebug", "internal/util", "internal/xcontext"}

// The files are read here and not with "go list": the test cache sees what a
// test opens, not what a child process opens, and would keep a stale "ok".
func TestFloors(t *testing.T) {
	const module = "onbehalf.internal/broker"
	floor := func(pkg string) int {
		return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, pkg) })
	}
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && outside(path) {
			return fs.SkipDir
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		seen[pkg] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if strings.HasPrefix(name, sdk) && pkg != "mcpfacade" && !slices.Contains(apart, pkg) {
				t.Errorf("%s: %s, whose types stay in mcpfacade", path, name)
			}
			if name != module && !strings.HasPrefix(name, module+"/") {
				continue
			}
			dep := strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
			if dep == "" {
				dep = "."
			}
			switch {
			case slices.Contains(apart, pkg):
				t.Errorf("%s: a counterpart imports %s", path, dep)
			case slices.Contains(apart, dep):
				if pkg != "brokertest" && pkg != "cmd/demo" && !strings.HasSuffix(pkg, "test") {
					t.Errorf("%s: the product imports the counterpart %s", path, dep)
				}
			case floor(dep) < 0 || floor(dep) >= floor(pkg):
				t.Errorf("%s: floor %d imports %s of floor %d", path, floor(pkg), dep, floor(dep))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range seen {
		if floor(pkg) < 0 && !slices.Contains(apart, pkg) {
			t.Errorf("%s has no floor", pkg)
		}
	}
}

// outside reports whether a folder stands outside the house: what only tests and
// measures, and modules of their own.
func outside(path string) bool {
	if path == "test" || path == "bench" || path == ".git" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil && path != "."
}

// TestProductHasNoCounterparts: what `broker` links holds no dev server, no
// profiler and nothing of a test. (expvar comes with the Prometheus client; it registers
// with the default mux, which nothing serves.)
func TestProductHasNoCounterparts(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/broker").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, refused := range []string{"/internal/dev", "/internal/realvault", "/internal/counterparts", "/brokertest", "/policytest", "/vaulttest", "/storetest", "/internal/test", "/secret/canary", "net/http/pprof",
			"github.com/zitadel/", "github.com/modelcontextprotocol/", "google.golang.org/grpc"} {
			part, ofSDK := strings.CutPrefix(dep, sdk)
			if strings.Contains(dep, refused) && !(ofSDK && slices.Contains(linked, part)) {
				t.Errorf("cmd/broker depends on %s", dep)
			}
		}
	}
}
