package worktree

import (
	"encoding/binary"
	"io/fs"
	"syscall"
)

// statBytes is what the index keeps of a file's stat, so that git need not
// read the file again to know it unchanged.
func statBytes(info fs.FileInfo) (b [statLen]byte) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return b
	}
	for i, v := range [...]uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec),
		uint32(st.Dev), uint32(st.Ino), st.Uid, st.Gid, uint32(st.Size),
	} {
		binary.BigEndian.PutUint32(b[i*4:], v)
	}
	return b
}
