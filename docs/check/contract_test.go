// Package check holds docs/openapi.yaml against running brokers: whatever an
// address answers must be in the file, and whatever is in the file must have been
// answered. That the file has the routes and words that the code has is looked
// at by httpapi's own TestOpenAPI.
//
// It is a module of its own so that the reader of OpenAPI is none of the
// product's dependencies.
package check

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// A contract is the file, and what has been seen of it.
type contract struct {
	doc    *openapi3.T
	router routers.Router
	seen   map[string]bool // :: "GET /readyz 200"
}

func read(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil // ours listen elsewhere
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &contract{doc, router, map[string]bool{}}
}

// hold holds one exchange against the file. A request that was accepted must be
// one that the file allows.
func (c *contract) hold(req *http.Request, body string, res *http.Response, answer []byte) error {
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		return err
	}
	c.seen[req.Method+" "+route.Path+" "+strconv.Itoa(res.StatusCode)] = true
	req.Body = io.NopCloser(strings.NewReader(body)) // what was sent has been read
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if res.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(req.Context(), in); err != nil {
			return err
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: res.StatusCode, Header: res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: req.Method == http.MethodHead}}
	return openapi3filter.ValidateResponse(req.Context(), out.SetBodyBytes(answer))
}

// written is every answer that the file has, as in seen.
func (c *contract) written() (list []string) {
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				list = append(list, method+" "+path+" "+status)
			}
		}
	}
	slices.Sort(list)
	return list
}

// complete says what is in the file and was never answered, and the other way
// round: an address without any answers would let all of them pass.
func (c *contract) complete(t *testing.T) {
	t.Helper()
	written := c.written()
	for _, w := range written {
		if !c.seen[w] {
			t.Errorf("%s is in the file, and nothing was answered so", w)
		}
	}
	for seen := range c.seen {
		if !slices.Contains(written, seen) {
			t.Errorf("%s was answered, and is not in the file", seen)
		}
	}
}
