package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"onbehalf.internal/broker/identity"
)

// Sizes of files, in bytes. Above them nothing is read.
const (
	maxConfig = 8 << 20
	maxGrants = 64 << 20
	maxOther  = 1 << 20
)

// Load reads and checks the file at path and every file that it names. The
// error, if any, is [Problems]: every problem at once, since the next thing
// anybody does is mend them and start again.
//
// Paths in the file are relative to its folder.
func Load(path string) (*Snapshot, error) {
	l := &loader{
		dir:   filepath.Dir(path),
		files: map[string][]byte{},
		lists: map[string][]string{},
		sum:   sha256.New(),
	}
	s := l.snapshot(filepath.Base(path))
	if len(l.problems) > 0 {
		l.problems.sort()
		return nil, l.problems
	}
	s.Path = path
	s.Hash = "sha256:" + hex.EncodeToString(l.sum.Sum(nil))
	return s, nil
}

// A loader is one run of Load. It reads on after a problem.
type loader struct {
	dir      string
	problems Problems
	files    map[string][]byte   // by name; nil: could not be read
	sum      hash.Hash           // over the files, in the order of their first reading
	lists    map[string][]string // grants share their equal lists
	keys     map[string]*known   // what was asked for, see keys.go; nil: nobody wants to know
}

func (l *loader) problem(file string, line int, key, what string) {
	l.problems = append(l.problems, Problem{file, line, key, what})
}

// snapshot reads the sections so that each finds what it refers to.
func (l *loader) snapshot(file string) *Snapshot {
	b, what := l.read(file, maxConfig)
	if what != "" {
		l.problem(file, 0, "", what)
		return nil
	}
	root := l.section(file, 1, "", l.parseYAML(file, b))
	if root == nil {
		return nil
	}
	defer root.end()
	root.need("version", "listen", "vault", "store", "callers")
	root.version()
	s := &Snapshot{
		Listen: readListen(root.child("listen")),
		Vault:  readVault(root.child("vault")),
		Store:  readStore(root.child("store")),
		Keys:   readKeyFiles(root.child("keys")),
		Audit:  readAudit(root.child("audit")),
		Traces: readTraces(root.child("traces")),
		Stop:   readStop(root.child("stop")),
		grants: map[string]map[string]*Grant{},
	}
	s.UI = readUI(root, s.Listen)
	s.MCP = readMCP(root)
	if s.Keys.Audit == "" {
		s.Audit.signing(root)
	}
	s.Timeout, s.Calls = readOperation(root.child("operation"))
	s.profiles = readProfiles(root, s.grants)
	s.servers = readServers(root, s.profiles, s.Timeout)
	var entries []identity.CallerConfig
	s.callers, entries = readCallers(root)
	if len(l.problems) == 0 {
		s.Directory = l.directory(root, entries)
	}
	return s
}

func (l *loader) directory(root *section, entries []identity.CallerConfig) *identity.Directory {
	d, err := identity.NewDirectory(entries, time.Now)
	if err != nil {
		root.report("callers", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return d
}

// read returns the bytes of a file that the config names, once; or what is
// wrong with it.
func (l *loader) read(name string, most int64) (b []byte, what string) {
	if b, ok := l.files[name]; ok {
		return b, ""
	}
	b, err := readFile(l.path(name), most)
	if err != nil {
		return nil, whatFile(err)
	}
	l.files[name] = b
	l.hash([]byte(filepath.ToSlash(name)))
	l.hash(b)
	return b, ""
}

// hash adds b with its length before it, so that no two lists of names and
// bytes have one sum.
func (l *loader) hash(b []byte) {
	l.sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	l.sum.Write(b)
}

func (l *loader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(l.dir, name)
}

var (
	errNotRegular = errors.New("is not a regular file")
	errWritable   = errors.New("can be written by its group or by everybody; chmod go-w it")
	errTooLarge   = errors.New("is too large; 8 MiB for the config, 64 MiB for a grants file, 1 MiB for others is the most")
)

// readFile looks at the open file and not at its name again, so that what was
// judged is what is read. It does not wait for the writer of a named pipe.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	case info.Mode().Perm()&0o022 != 0:
		return nil, errWritable
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if int64(len(b)) > most {
		err = cmp.Or(err, errTooLarge)
	}
	return b, err
}

func whatFile(err error) string {
	for _, ours := range []error{errNotRegular, errWritable, errTooLarge} {
		if errors.Is(err, ours) {
			return ours.Error()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist; relative paths begin at the folder of the config"
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this process"
	default:
		return "cannot be read"
	}
}
