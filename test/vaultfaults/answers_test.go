package vaultfaults

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// marker is in every foreign answer, and may be in no output of ours.
const marker = "foreign-text-of-an-answer"

// A reading is what an answer has to be taken for. The tables say for each step
// what follows from it.
type reading string

const (
	foreign reading = "foreign" // not Vault's, or not the one that is due: it may have acted
	lost    reading = "lost"    // none: it may have acted
	sealed  reading = "sealed"  // 503: it may have acted
	empty   reading = "empty"   // 200 that says nothing
	other   reading = "other"   // 200 with another value, of the right form
	nothing reading = "nothing" // 204, and Vault never saw the request
	refused reading = "refused" // a 4xx of Vault: it did not act
	denied  reading = "denied"  // 403
	absent  reading = "absent"  // 404
	limited reading = "limited" // 429
)

// A wrong is one wrong answer. Its act stands in Vault's place, and may let next,
// which is Vault, act all the same.
type wrong struct {
	name string
	reading
	act func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

type act = func(w http.ResponseWriter, r *http.Request, next http.Handler)

// fitting has a value for every step: of a login, an epoch, a credential, a hold.
const fitting = `{"data":{"token":"` + marker + `","ttl":600,"renewable":true,"type":"kv","path":"other/",` +
	`"data":{"value":"` + marker + `"},"metadata":{"version":1}},` +
	`"auth":{"client_token":"` + marker + `","accessor":"accessor-of-somebody","lease_duration":75,"renewable":true}}`

// answers are all of them. elsewhere is a host that no request may reach.
func answers(elsewhere string) []wrong {
	const errors = `{"errors":["1 error occurred:\n\t* ` + marker + `\n\n"]}`
	to := http.Header{"Location": {elsewhere + "/v1/" + marker}}
	after := func(seconds string) http.Header { return http.Header{"Retry-After": {seconds}} }
	return []wrong{
		{"200 other value", other, says(200, nil, fitting)},
		{"200 other value, of odd names", other, says(200, nil, strings.ReplaceAll(fitting, "accessor-of", marker+"\\n"))},
		{"200 empty object", empty, says(200, nil, `{}`)},
		{"200 data null", empty, says(200, nil, `{"request_id":"x","data":null,"auth":null}`)},
		{"200 only warnings", empty, says(200, nil, `{"request_id":"x","warnings":["`+marker+`"]}`)},
		{"200 empty body", foreign, says(200, nil, "")},
		{"200 of other kinds", empty, says(200, nil, `{"data":{"token":7,"ttl":"x","data":[],"type":{},"path":1},"auth":["x"]}`)},
		{"201", foreign, says(201, nil, fitting)},
		{"202", foreign, says(202, nil, fitting)},
		{"204", nothing, says(204, nil, "")},
		{"301", foreign, says(301, to, "")},
		{"302", foreign, says(302, to, "")},
		{"303", foreign, says(303, to, "")},
		{"304", foreign, says(304, to, "")},
		{"307", foreign, says(307, to, "")},
		{"307 with a value", foreign, says(307, to, fitting)},
		{"308", foreign, says(308, to, "")},
		{"400", refused, says(400, nil, errors)},
		{"403 of Vault", denied, says(403, nil, `{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token `+marker+`\n\n"]}`)},
		{"403 of OpenBao", denied, says(403, nil, `{"errors":["permission denied"]}`)},
		{"403 of somebody else", foreign, says(403, nil, `{"message":"`+marker+`"}`)},
		{"404 no errors", absent, says(404, nil, `{"errors":[]}`)},
		{"404 deleted version", absent, says(404, nil, `{"data":{"data":null,"metadata":{"deletion_time":"2026-01-01T00:00:00Z","version":1}}}`)},
		{"404 of somebody else", foreign, says(404, nil, `{"message":"no route"}`)},
		{"405", refused, says(405, nil, errors)},
		{"412", refused, says(412, nil, errors)},
		{"429 Retry-After 0", limited, says(429, after("0"), errors)},
		{"429 Retry-After 1", limited, says(429, after("1"), errors)},
		{"429 Retry-After 3600", limited, says(429, after("3600"), errors)},
		{"472", refused, says(472, nil, errors)},
		{"473", refused, says(473, nil, errors)},
		{"500 audit failed before", foreign, says(500, nil, errors)},
		{"500 after", foreign, afterwards(says(500, nil, errors))},
		{"502 HTML", foreign, html(502)},
		{"503 sealed", sealed, says(503, nil, `{"errors":["Vault is sealed `+marker+`"]}`)},
		{"503 after", sealed, afterwards(says(503, nil, errors))},
		{"200 HTML", foreign, html(200)},
		{"truncated JSON", foreign, afterwards(says(200, nil, fitting[:len(fitting)/2]))},
		{"2 MiB", foreign, afterwards(says(200, nil, fitting[:len(fitting)-1]+`,"pad":"`+strings.Repeat("x", 2<<20)+`"}`))},
		{"a key twice", foreign, afterwards(says(200, nil, fitting[:len(fitting)-1]+","+fitting[1:]))},
		{"a key of the value twice", foreign, twice},
		{"1xx storm", lost, storm},
		{"slow-loris body", lost, drip},
		{"cut before", lost, cut},
		{"cut after", lost, afterwards(cut)},
		{"cut in the body", lost, afterwards(cutInBody)},
		{"no answer", lost, hang},
		{"no answer after", lost, afterwards(hang)},
	}
}

// afterwards lets Vault act first.
func afterwards(then act) act {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), r)
		then(w, r, next)
	}
}

func says(status int, header http.Header, body string) act {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func html(status int) act {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		io.WriteString(w, "<html>"+marker+"</html>")
	}
}

// twice is Vault's own answer with a second one of each of its values before it.
func twice(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	if len(body) == 0 {
		body = []byte(`{"data":{"token":"x"}}`)
	}
	for _, object := range []string{`"data":{`, `"auth":{`} {
		members := `"token":"` + marker + `","value":"` + marker + `","ttl":600,"type":"kv","client_token":"` + marker + `",`
		body = bytes.ReplaceAll(body, []byte(object), []byte(object+members+members))
	}
	says(http.StatusOK, nil, string(body))(w, r, next)
}

func cut(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

func cutInBody(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(fitting)))
	io.WriteString(w, fitting[:len(fitting)-1])
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// drip sends a byte of a good answer at a time, and so never ends.
func drip(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json")
	slowly := time.NewTicker(100 * time.Millisecond)
	defer slowly.Stop()
	for i := 0; ; i++ {
		select {
		case <-r.Context().Done():
			return
		case <-slowly.C:
			io.WriteString(w, fitting[:1]+strings.Repeat(" ", i%2))
			http.NewResponseController(w).Flush()
		}
	}
}

// storm sends interim answers and no final one.
func storm(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: <"+marker+">\r\n\r\n")
	}
}
