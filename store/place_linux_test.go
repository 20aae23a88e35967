package store

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestLocal(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind int64
		ok   bool
	}{
		{"ext4", unix.EXT4_SUPER_MAGIC, true},
		{"xfs", unix.XFS_SUPER_MAGIC, true},
		{"tmpfs", unix.TMPFS_MAGIC, true}, // its end is the ledger's: the next one is new
		{"overlay", unix.OVERLAYFS_SUPER_MAGIC, true},

		{"nfs", unix.NFS_SUPER_MAGIC, false},
		{"smb", unix.SMB_SUPER_MAGIC, false},
		{"cifs", unix.CIFS_SUPER_MAGIC, false},
		{"smb2", unix.SMB2_SUPER_MAGIC, false},
		{"smb2 where the field is 32 bits and signed", int64(int32(-0x1acb2be)), false},
	} {
		if err := local(tc.kind); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
