package store

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// localFile refuses a folder that other machines share: neither the lock nor the
// write-ahead log's shared memory reaches over there
// (https://sqlite.org/wal.html, "all processes must be on the same host").
func localFile(folder string) error {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return nil // it is not there: opening the file says so
	}
	return local(int64(st.Type))
}

func local(kind int64) error {
	name := map[int64]string{
		unix.NFS_SUPER_MAGIC:  "NFS",
		unix.SMB_SUPER_MAGIC:  "SMB",
		unix.SMB2_SUPER_MAGIC: "SMB",
		unix.CIFS_SUPER_MAGIC: "SMB",
	}[kind&0xffffffff]
	if name == "" {
		return nil
	}
	return fmt.Errorf("its folder is on %s: a ledger needs a disk of one machine", name)
}
