//go:build linux

package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// What is needed of the qcow2 format (QEMU's docs/interop/qcow2.txt). An image is what a stranger wrote: one that names other files,
// which the hypervisor would open, is refused, and so is what this program does not know.
const (
	qcowMagic      = "QFI\xfb"
	qcowLeast      = 72  // bytes of a header of version 2
	qcowHeaderSize = 104 // and of version 3
	qcowDataFile   = 0x44415441
	qcowLUKS       = 0x0537be77
	qcowCluster    = 64 << 10 // of those made here
	sectorSize     = 512
	// diskMax is the largest disk: the table of one that is made here is then a cluster.
	diskMax = qcowCluster / 8 * (qcowCluster / 8) * qcowCluster
)

// The features of version 3 that a reader must know, by bits: 0 unclean, 1 damaged, 2 data in another file, 3 other
// compression, 4 finer tables.
const qcowKnown = 1<<0 | 1<<3 | 1<<4

// openDisk tells the format of a disk's image and the size of the disk.
func openDisk(f io.ReaderAt, length int64) (format string, size int64, err error) {
	begin := make([]byte, 2*sectorSize)
	n, err := f.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, err
	}
	begin = begin[:n]
	if n >= 4 && string(begin[:4]) == qcowMagic {
		size, err = readQcow(f)
		return "qcow2", size, err
	}
	if n < 2*sectorSize || string(begin[510:512]) != "\x55\xaa" && string(begin[512:520]) != "EFI PART" {
		return "", 0, errors.New("it is no qcow2, and no raw disk with a table of partitions or a boot sector; convert it by qemu-img convert -O qcow2")
	}
	return "raw", (length + sectorSize - 1) &^ (sectorSize - 1), nil
}

// readQcow gives the size of the disk that a qcow2 image stands for.
func readQcow(f io.ReaderAt) (int64, error) {
	h := make([]byte, qcowLeast)
	if _, err := f.ReadAt(h, 0); err != nil {
		return 0, errors.New("its header is cut off")
	}
	be := binary.BigEndian
	version, bits, size := be.Uint32(h[4:]), be.Uint32(h[20:]), be.Uint64(h[24:])
	switch {
	case version != 2 && version != 3:
		return 0, fmt.Errorf("its version is %d; convert it by qemu-img convert -O qcow2", version)
	case be.Uint64(h[8:]) != 0 || be.Uint32(h[16:]) != 0:
		return 0, errors.New("it names another file that it is based on; make it whole by qemu-img convert -O qcow2")
	case bits < 9 || bits > 21:
		return 0, fmt.Errorf("its clusters have 2^%d bytes", bits)
	case size == 0 || size > diskMax || size%sectorSize != 0:
		return 0, fmt.Errorf("its disk has %d bytes", size)
	case be.Uint32(h[32:]) != 0:
		return 0, errors.New("it is encrypted")
	}
	at := int64(qcowLeast)
	if version == 3 {
		more := make([]byte, qcowHeaderSize-qcowLeast)
		if _, err := f.ReadAt(more, qcowLeast); err != nil {
			return 0, errors.New("its header is cut off")
		}
		if features := be.Uint64(more); features&(1<<2) != 0 {
			return 0, errors.New("its data is in another file; make it whole by qemu-img convert -O qcow2")
		} else if features&^qcowKnown != 0 {
			return 0, fmt.Errorf("it is damaged, or has features that are not known (%#x)", features&^qcowKnown)
		}
		length := be.Uint32(more[qcowHeaderSize-qcowLeast-4:])
		if length < qcowHeaderSize || length%8 != 0 || length > 1<<bits {
			return 0, fmt.Errorf("its header has %d bytes", length)
		}
		at = int64(length)
	}
	for at+8 <= 1<<bits { // what more there is in the first cluster, until one of kind 0
		var e [8]byte
		if _, err := f.ReadAt(e[:], at); err != nil {
			break
		}
		kind, n := be.Uint32(e[:]), int64(be.Uint32(e[4:]))
		switch {
		case kind == 0:
			return int64(size), nil
		case kind == qcowDataFile || kind == qcowLUKS:
			return 0, errors.New("its data is in another file, or encrypted; make it whole by qemu-img convert -O qcow2")
		case n > 1<<bits:
			return 0, errors.New("its header makes no sense")
		}
		at += 8 + (n+7)&^7
	}
	return int64(size), nil
}

// makeOverlay makes a qcow2 for what is written to a disk of a size. It names no other file: who opens it says what it is based on.
func makeOverlay(path string, size int64) error {
	perTable := int64(qcowCluster / 8 * qcowCluster) // what an entry of the first table stands for
	be := binary.BigEndian
	h := make([]byte, 4*qcowCluster) // header, table of counts, counts, table of the disk
	copy(h, qcowMagic)
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 16) // bits of a cluster
	be.PutUint64(h[24:], uint64(size))
	be.PutUint32(h[36:], uint32((size+perTable-1)/perTable))
	be.PutUint64(h[40:], 3*qcowCluster)
	be.PutUint64(h[48:], qcowCluster)
	be.PutUint32(h[56:], 1)
	be.PutUint32(h[96:], 4) // counts of 16 bits
	be.PutUint32(h[100:], qcowHeaderSize)
	be.PutUint64(h[qcowCluster:], 2*qcowCluster)
	for i := range 4 {
		be.PutUint16(h[2*qcowCluster+2*i:], 1)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(h)
	return errors.Join(err, f.Close())
}
