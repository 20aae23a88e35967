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

// DiskOf asks about the disk that a folder lies on.
func DiskOf(folder string) Disk {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return Disk{}
	}
	return Disk{Size: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize, Passing: passing(int64(st.Type))}
}

func passing(kind int64) string {
	return map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay"}[kind&0xffffffff]
}
