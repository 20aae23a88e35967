// Front is the broker as an MCP server for the conformance suite, which brings no token: a
// whole broker over the everything-server of the Go SDK, and before it a proxy that adds the
// access token of user:7. It prints the address and serves until its standard input ends.
//
//	front everything-server
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"onbehalf.internal/broker/brokertest"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string) error {
	upstream, err := freeAddress()
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, program, "-http="+upstream, "-stateless=true")
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Process.Kill()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	origin := "http://" + l.Addr().String()
	rig, err := brokertest.Start(ctx, brokertest.Options{Config: func(yaml string) string { return configured(brokertest.FrontedAt(origin)(yaml), upstream) }})
	if err != nil {
		return err
	}
	defer rig.Close()
	if err := imported(ctx, rig); err != nil {
		return err
	}
	to, err := url.Parse(rig.URL)
	if err != nil {
		return err
	}
	token := rig.Token("7", origin+"/mcp/records", map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
	go http.Serve(l, &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host
		p.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	fmt.Println(origin + "/mcp/records")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// tools are those of the everything-server that answer by themselves: what asks its caller in
// the middle of a call is not for a broker.
var tools = []string{"test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource", "test_multiple_content_types",
	"test_tool_with_logging", "test_tool_with_progress", "test_error_handling", "json_schema_2020_12_tool", "test_x_mcp_header"}

var recordsURL = regexp.MustCompile(`(?m)^(  records:\n    url: ).*$`)

func configured(yaml, upstream string) string {
	yaml = recordsURL.ReplaceAllString(yaml, "${1}http://"+upstream)
	_, after, _ := strings.Cut(yaml, "\n  records:\n")
	list, _, _ := strings.Cut(after[strings.Index(after, "    tools: "):], "\n")
	return strings.Replace(yaml, list, "    tools: {"+strings.Join(tools, ": {enabled: true, effect: read}, ")+": {enabled: true, effect: read}}", 1)
}

func imported(ctx context.Context, rig *brokertest.Rig) error {
	req, err := http.NewRequestWithContext(ctx, "POST", rig.URL+"/v1/servers/records/import", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+rig.AdminBearer())
	res, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("import: %d %s", res.StatusCode, body)
	}
	fmt.Fprintf(os.Stderr, "import: %s\n", body)
	return err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
