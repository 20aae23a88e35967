package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/policy"
)

//go:embed init.yaml
var initTemplate string

// A fact is one thing that the first configuration needs. Those with a value to begin
// with are not asked for.
type fact struct{ name, value, usage string }

// initFacts are all of them, in the order of the questions.
func initFacts() []*fact {
	return []*fact{
		{"vault", "", "Vault's address, such as https://vault.example.org:8200"},
		{"role-id", "", "role id of the broker's AppRole there; deploy/vault/setup.sh prints it"},
		{"provider", "", "the provider's address for exchanges, such as https://identity.example.org/oauth/exchange"},
		{"issuer", "", "the provider's issuer, such as https://identity.example.org"},
		{"client-id", "", "the broker's client id at the provider"},
		{"client-ref", "", "where Vault has what that client proves itself with, such as vault:kv/broker/client#value"},
		{"server", "", "the MCP server's id, such as records"},
		{"url", "", "its address, such as https://records.example.org/mcp"},
		{"audience", "", "the audience that it is known by at the provider"},
		{"scopes", "", "the scopes that it wants, with commas between"},
		{"tools", "", "the tools that may be called, with commas between"},
		{"data-class", "", "what its answers are: publicContent, internalConfiguration, …"},
		{"actor", "", "who may: user:7 or service:nightly"},
		{"actor-ref", "", "where Vault has what the actor got from the provider, such as vault:kv/broker/subjects/7#value"},
		{"profile", "company", "what the provider is called here"},
		{"caller", "gateway", "what the gateway is called here"},
		{"listen", "127.0.0.1:8471", "where the broker answers; or unix:/path"},
	}
}

func initCommand(w world) *cobra.Command {
	var out string
	var force bool
	facts := initFacts()
	cmd := &cobra.Command{Use: "init", Short: "Write a first configuration: one provider, one server, one grant", Args: cobra.NoArgs,
		Long: `Write a first configuration, with comments, that broker check takes. What no flag
says is asked for on a terminal. The gateway's bearer is made here and written
beside it, into <caller>.bearer; the configuration has its SHA-256.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(facts, cmd.InOrStdin(), w.stderr); err != nil {
				return err
			}
			return writeFirst(w, facts, out, force)
		}}
	cmd.Flags().StringVar(&out, "out", "profiles.yaml", "the file to write")
	cmd.Flags().BoolVar(&force, "force", false, "write over files that are there")
	for _, f := range facts {
		cmd.Flags().StringVar(&f.value, f.name, f.value, f.usage)
	}
	return cmd
}

// complete asks a person at a terminal for what is missing; where nobody is there, all of
// it is named.
func complete(facts []*fact, in io.Reader, prompts io.Writer) error {
	var lines *bufio.Scanner
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
			lines = bufio.NewScanner(f)
		}
	}
	var missing []string
	for _, f := range facts {
		if f.value == "" && lines != nil {
			fmt.Fprintf(prompts, "%s: ", f.usage)
			if lines.Scan() {
				f.value = strings.TrimSpace(lines.Text())
			}
		}
		if f.value == "" {
			missing = append(missing, "--"+f.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("missing: %s", strings.Join(missing, ", "))
	}
	return nil
}

// writeFirst writes the bearer and then the configuration; what the loader would refuse
// never gets its name.
func writeFirst(w world, facts []*fact, out string, force bool) (err error) {
	said := map[string]string{}
	for _, f := range facts {
		said[f.name] = f.value
	}
	bearerFile := filepath.Join(filepath.Dir(out), filepath.Base(said["caller"])+".bearer")
	for _, path := range []string{out, bearerFile} {
		if _, err := os.Lstat(path); err == nil && !force {
			return fmt.Errorf("%q is there; --force writes over it", path)
		}
	}
	bearer := rand.Text() + rand.Text()
	text, err := firstConfig(said, bearer)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".init")
	if err != nil {
		return fmt.Errorf("the folder of %q cannot be written", out)
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, filepath.Base(out))
	secret := filepath.Join(dir, "bearer")
	if err := errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.WriteFile(secret, []byte(bearer), 0o600)); err != nil {
		return fmt.Errorf("the folder of %q cannot be written", out)
	}
	if _, err := policy.Load(fresh); err != nil {
		return fmt.Errorf("nothing is written, since the configuration would be refused:\n%w", err)
	}
	if err := put(secret, bearerFile, force); err != nil {
		return err
	}
	if err := put(fresh, out, force); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: broker check --config %s takes it\n%s: the bearer of %s, for the gateway alone\nbeside it goes secret_id, which deploy/vault/setup.sh -a makes\n", out, out, bearerFile, said["caller"])
	return nil
}

// put gives a finished file its name. Without force a link is made, which fails where
// somebody was faster.
func put(from, to string, force bool) error {
	give := os.Link
	if force {
		give = os.Rename
	}
	if give(from, to) != nil {
		return fmt.Errorf("%q cannot be written, or was made meanwhile", to)
	}
	return nil
}

// firstConfig fills the template. Whatever was said becomes a quoted text.
func firstConfig(said map[string]string, bearer string) (string, error) {
	funcs := template.FuncMap{
		"said": func(name string) string { return strconv.Quote(said[name]) },
		"list": func(name string) string {
			var quoted []string
			for entry := range strings.SplitSeq(said[name], ",") {
				quoted = append(quoted, strconv.Quote(strings.TrimSpace(entry)))
			}
			return "[" + strings.Join(quoted, ", ") + "]"
		},
		"tools": func() (names []string) {
			for entry := range strings.SplitSeq(said["tools"], ",") {
				names = append(names, strconv.Quote(strings.TrimSpace(entry)))
			}
			return names
		},
		"digest":   func() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(bearer))) },
		"zone":     func() string { return zoneFor(said["data-class"]) },
		"loopback": func(name string) bool { return isLoopback(said[name]) },
	}
	var b strings.Builder
	err := template.Must(template.New("init.yaml").Funcs(funcs).Parse(initTemplate)).Execute(&b, nil)
	return b.String(), err
}

// zoneFor is the strictest zone in which a caller sees the class.
func zoneFor(class string) string {
	for _, word := range policy.Zones() {
		zone, _ := policy.ParseZone(word)
		for c := policy.DataClass(1); c <= zone.Ceiling(); c++ {
			if c.String() == class {
				return word
			}
		}
	}
	return policy.Zones()[0]
}

// isLoopback reports whether an address is on this machine, where the declaration has
// to allow that.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
