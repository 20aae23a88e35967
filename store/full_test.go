package store_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// onFullDisk opens a database on a disk of its own, which is full, and again when
// there is space: a file system in memory that other processes do not see.
const onFullDisk = `
mount -t tmpfs -o size=2m,mode=700 none "$1" || exit 77
cp -p "$1.left/"* "$1/"
cat /dev/zero > "$1/filler" 2>/dev/null
truncate -s -32K "$1/filler" # for the -shm
"$2"
rm "$1/filler"
"$2"
`

func TestOpenOnFullDisk(t *testing.T) {
	for _, closed := range []bool{true, false} {
		l := leave(t, closed, leftRows)
		dir := filepath.Join(t.TempDir(), "disk")
		for _, command := range []*exec.Cmd{
			exec.Command("mkdir", dir, dir+".left"),
			exec.Command("sh", "-c", `cp -p "$1"* "$2"`, "sh", l.path, dir+".left"),
		} {
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
		}
		self := childCommand("open", filepath.Join(dir, "broker.db"))
		cmd := exec.Command("unshare", "-rm", "sh", "-c", onFullDisk, "sh", dir, self.Path)
		cmd.Env = self.Env
		out, err := cmd.Output()
		if failed := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &failed) || failed.ExitCode() == 77 || len(out) == 0) {
			t.Fatal("no file system can be mounted here (as unshare -rm does, a namespace of users allowed): ", err)
		}
		if !regexp.MustCompile(`^opening the store ".*/disk/broker.db": the disk is full: free space and start again \(SQLite result code 13\)\nopen ` + l.id + `\n$`).Match(out) {
			t.Errorf("closed %v: it says\n%s", closed, out)
		}
	}
}
