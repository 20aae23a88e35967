package main

import (
	"archive/zip"
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// A manifest says what is in a bundle. Nothing in it depends on who makes it, where or
// when: what is made twice of the same is the same.
type manifest struct {
	Format string  `json:"format"`
	Broker string  `json:"broker"` // version of the program that made it
	Grants listed  `json:"grants"`
	Audit  proven  `json:"audit"`
	Files  []inZip `json:"files"` // but this one and SHA256SUMS
}

type listed struct {
	Rows     int    `json:"rows"`
	Snapshot string `json:"snapshot"`                // hash of the configuration
	Counted  string `json:"counted_since,omitempty"` // since when uses are; absent: it is of a file, which knows of none
}

type proven struct {
	Ledger string `json:"ledger"`
	Before uint64 `json:"pruned,omitempty"` // records before these, which are not there
	covered
	Until    string   `json:"until"`
	Head     string   `json:"head"` // <number>:<hash> of the last record
	Hash     string   `json:"-"`
	Verified bool     `json:"verified"` // before this was written
	Heads    int      `json:"signed_heads"`
	Signed   uint64   `json:"signed_records"`      // that the newest of them speaks of
	Keys     []string `json:"signed_by,omitempty"` // <name>+<hash> of the keys that verified them
}

type inZip struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// A bundle is a zip in the making: its files, in their order, in a folder.
type bundle struct {
	dir      string
	manifest manifest
}

func (b *bundle) path(name string) string { return filepath.Join(b.dir, name) }

// add makes the next file.
func (b *bundle) add(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(b.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.New("keeping a file for a while: not possible for this process")
	}
	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(file, sum))
	err = errors.Join(write(out), out.Flush())
	info, statErr := file.Stat()
	if err := errors.Join(err, statErr, file.Close()); err != nil {
		return err
	}
	b.manifest.Files = append(b.manifest.Files, inZip{name, info.Size(), fmt.Sprintf("%x", sum.Sum(nil))})
	return nil
}

//go:embed report.md
var howTo string

// write makes the zip of what was added, and of how to verify it. It replaces no file.
func (b *bundle) write(path string) (sum []byte, err error) {
	page := template.Must(template.New("").Parse(howTo))
	if err := b.add("VERIFY.md", func(out io.Writer) error { return page.Execute(out, b.manifest) }); err != nil {
		return nil, err
	}
	about, err := json.MarshalIndent(b.manifest, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := b.add("manifest.json", func(out io.Writer) error { _, err := fmt.Fprintf(out, "%s\n", about); return err }); err != nil {
		return nil, err
	}
	files := b.manifest.Files
	if err := b.add("SHA256SUMS", func(out io.Writer) error {
		for _, f := range files {
			fmt.Fprintf(out, "%s  %s\n", f.SHA256, f.Name)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making %q: it is there already, or not possible for this process", path)
	}
	digest := sha256.New()
	if err := errors.Join(b.zip(io.MultiWriter(file, digest)), file.Sync(), file.Close()); err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("writing %q: it could not be written whole", path)
	}
	return digest.Sum(nil), nil
}

// zipTime stands in the archive for all times: the first that its format knows.
var zipTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *bundle) zip(out io.Writer) error {
	archive := zip.NewWriter(out)
	for _, f := range b.manifest.Files {
		in, err := os.Open(b.path(f.Name))
		if err != nil {
			return err
		}
		entry, err := archive.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: zipTime})
		if err == nil {
			_, err = io.Copy(entry, in)
		}
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return archive.Close()
}
