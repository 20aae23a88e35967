package webui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// An answer is what goes back: written in one place, after everything is decided.
type answer struct {
	status   int    // 0: 200
	page     string // the template
	title    string
	model    any
	refresh  string // where the document goes on to by itself
	redirect string // in place of a page
	download *download
	cookies  []*http.Cookie
}

// A download is a file in place of a page. What goes wrong after its first byte cuts
// the connection: no part of it looks like the whole.
type download struct {
	name, media string
	write       func(http.ResponseWriter) error
}

// A frame is what every page stands in.
type frame struct {
	Title, At, Origin, Refresh string
	Visitor                    string // empty: nobody
	Audit, Approve             bool   // what the visitor may
	Model                      any
}

type pages map[string]*template.Template

// parsePages makes a template of every file and the frame around it. One that is broken
// does not start; a test parses them.
func parsePages() pages {
	all := pages{}
	base := template.Must(template.New("frame.html").Funcs(functions).ParseFS(templateFiles, "templates/frame.html"))
	files, _ := fs.Glob(templateFiles, "templates/*.html")
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, file))
	}
	return all
}

func (u *UI) write(w http.ResponseWriter, v *visit, ans answer) {
	for _, c := range ans.cookies {
		http.SetCookie(w, c)
	}
	switch {
	case ans.redirect != "":
		http.Redirect(w, v.http, ans.redirect, http.StatusSeeOther)
		return
	case ans.download != nil:
		w.Header().Set("Content-Type", ans.download.media)
		w.Header().Set("Content-Disposition", `attachment; filename="`+ans.download.name+`"`)
		if err := ans.download.write(w); err != nil {
			u.Log.Warn("download broken off", "reason", string(fault.ReasonOf(err)))
			panic(http.ErrAbortHandler)
		}
		return
	}
	f := frame{Title: ans.title, At: v.http.URL.Path, Origin: u.Origin, Refresh: ans.refresh, Model: ans.model}
	if !v.nobody() {
		f.Visitor, f.Audit, f.Approve = v.String(), v.may(identity.Audit), v.may(identity.Approve)
	}
	var body bytes.Buffer
	if err := u.pages[ans.page].ExecuteTemplate(&body, "frame.html", f); err != nil {
		u.Log.Error("page not made", "page", ans.page, "type", errors.Unwrap(err) != nil)
		http.Error(w, "this page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(max(ans.status, http.StatusOK))
	w.Write(body.Bytes())
}

// refusal is the only way an error leaves. Who is nobody is asked to sign in.
func (u *UI) refusal(v *visit, err error) answer {
	reason := fault.ReasonOf(err)
	if reason == fault.CallerUnknown && v.http.Method == http.MethodGet {
		return answer{redirect: "/ui/sign-in"}
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		u.Log.Error("unclassified error on a page")
		err, reason = fault.New("webui", fault.InternalError, ""), fault.InternalError
	}
	return answer{status: fault.Status(reason), page: "refused", title: "Not possible", model: told(err)}
}

// told is an error in our words.
func told(err error) string {
	words := strings.ReplaceAll(string(fault.ReasonOf(err)), "_", " ")
	var e *fault.Error
	if errors.As(err, &e) && e.Detail != "" {
		words += ": " + e.Detail
	}
	return words
}

func moved(to string) func(context.Context, *visit) (answer, error) {
	return func(context.Context, *visit) (answer, error) { return answer{redirect: to}, nil }
}

// media are the types of the files beside the pages: of each one, whatever the machine
// thinks of its name.
var media = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// static serves what is embedded, each file as a whole; a browser asks whether its copy
// is still the one.
func static() http.Handler {
	type file struct {
		body []byte
		tag  string
	}
	known := map[string]file{}
	names, _ := fs.Glob(staticFiles, "static/*")
	for _, name := range names {
		b, _ := staticFiles.ReadFile(name)
		sum := sha256.Sum256(b)
		known["/ui/"+name] = file{b, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := known[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", f.tag)
		if r.Header.Get("If-None-Match") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", media[path.Ext(r.URL.Path)])
		h.Set("Content-Length", strconv.Itoa(len(f.body)))
		w.Write(f.body)
	})
}

// functions are what templates may do with what they are given.
var functions = template.FuncMap{
	"words":  func(s any) string { return strings.ReplaceAll(text(s), "_", " ") },
	"shown":  shown,
	"json":   pretty,
	"time":   stamp,
	"day":    func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	"ms":     func(d time.Duration) string { return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) },
	"short":  func(s any) string { return text(s)[:min(19, len(text(s)))] },
	"list":   func(l []string) string { return strings.Join(l, ", ") },
	"before": strings.HasPrefix,
	"kind":   kindOf,
}

// text is a word of ours, of whatever type.
func text(s any) string { return fmt.Sprint(s) }

const mostShown = 300 // bytes of one text from outside

// shown is text from outside for people: what steers, turns or cannot be seen is spelled
// out, and what is long is cut, with its length.
func shown(s string) string {
	if len(s) <= mostShown {
		return catalogue.Shown(s)
	}
	return catalogue.Shown(strings.ToValidUTF8(s[:mostShown], "")) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// pretty is JSON from outside for people, whole: what is decided about is seen.
func pretty(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return catalogue.Shown(string(raw))
	}
	return catalogue.Shown(b.String())
}

// stamp is a time in UTC; a script adds the reader's own in its title.
func stamp(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `">` + t.Format("2006-01-02 15:04:05") + `</time>`)
}
