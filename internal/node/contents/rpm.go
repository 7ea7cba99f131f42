// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	errTruncated = errors.New("truncated, or not a valid database")
	errUnknown   = errors.New("unknown format")
)

// readRPM returns the packages of an RPM database in one of its three formats.
func readRPM(db []byte) ([]Package, error) {
	var headers [][]byte
	var err error
	switch {
	case bytes.HasPrefix(db, []byte("SQLite format 3\x00")):
		headers, err = readSQLite(db)
	case bytes.HasPrefix(db, []byte("RpmP")):
		headers, err = readNDB(db)
	case len(db) >= bdbMeta && (isBDB(db, binary.LittleEndian) || isBDB(db, binary.BigEndian)):
		headers, err = readBDB(db)
	default:
		err = errUnknown
	}
	if err != nil {
		return nil, err
	}
	packages := make([]Package, 0, len(headers))
	for _, h := range headers {
		p, err := packageOf(h)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// at returns n bytes of db from an offset, which comes from the file.
func at(db []byte, offset, n uint64) ([]byte, error) {
	if size := uint64(len(db)); offset > size || n > size-offset {
		return nil, errTruncated
	}
	return db[offset : offset+n], nil
}

// Tags and types of a header, from rpm's rpmtag.h.
const (
	tagName, tagVersion, tagRelease, tagEpoch = 1000, 1001, 1002, 1003
	tagArch, tagSourceRPM                     = 1022, 1044
	typeInt32, typeString                     = 4, 6
)

// packageOf reads a header as rpm stores it: the number of entries, the size of the data, entries of 16 bytes, data.
func packageOf(header []byte) (Package, error) {
	if len(header) < 8 {
		return Package{}, errTruncated
	}
	entries, size := uint64(binary.BigEndian.Uint32(header)), uint64(binary.BigEndian.Uint32(header[4:]))
	index, err := at(header, 8, entries*16)
	if err != nil {
		return Package{}, err
	}
	data, err := at(header, 8+entries*16, size)
	if err != nil {
		return Package{}, err
	}
	values := map[uint32]string{}
	for ; len(index) > 0; index = index[16:] {
		tag, kind := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[4:])
		offset := uint64(binary.BigEndian.Uint32(index[8:]))
		switch tag {
		case tagName, tagVersion, tagRelease, tagEpoch, tagArch, tagSourceRPM:
		default:
			continue
		}
		switch kind {
		case typeInt32:
			number, err := at(data, offset, 4)
			if err != nil {
				return Package{}, err
			}
			values[tag] = strconv.FormatUint(uint64(binary.BigEndian.Uint32(number)), 10)
		case typeString:
			text, _, isWhole := bytes.Cut(data[min(offset, size):], []byte{0})
			if !isWhole {
				return Package{}, errTruncated
			}
			values[tag] = string(text)
		}
	}
	p := Package{Format: RPM, Name: values[tagName], Arch: values[tagArch], Source: sourceName(values[tagSourceRPM])}
	p.Version = values[tagVersion] + "-" + values[tagRelease]
	if epoch := values[tagEpoch]; epoch != "" && epoch != "0" {
		p.Version = epoch + ":" + p.Version
	}
	if p.Name == "" || values[tagVersion] == "" {
		return Package{}, fmt.Errorf("a package without a name or version: %w", errTruncated)
	}
	return p, nil
}

// sourceName returns the name of NAME-VERSION-RELEASE.src.rpm.
func sourceName(file string) string {
	for range 2 {
		n := strings.LastIndexByte(file, '-')
		if n < 0 {
			return ""
		}
		file = file[:n]
	}
	return file
}

// readNDB returns the headers of a Packages.db (rpm's backend ndb): slots of 16 bytes in pages of 4 KiB, the first two
// of which are the file's header, name blobs.
func readNDB(db []byte) (headers [][]byte, err error) {
	little := binary.LittleEndian
	if len(db) < 32 || little.Uint32(db[4:]) != 0 {
		return nil, errUnknown
	}
	slots, err := at(db, 0, uint64(little.Uint32(db[12:]))*4096)
	if err != nil || len(slots) == 0 {
		return nil, errTruncated
	}
	for slots = slots[32:]; len(slots) > 0; slots = slots[16:] {
		id := little.Uint32(slots[4:])
		if string(slots[:4]) != "Slot" {
			return nil, errTruncated
		}
		if id == 0 {
			continue // free
		}
		offset := uint64(little.Uint32(slots[8:])) * 16
		blob, err := at(db, offset, 16)
		if err != nil || string(blob[:4]) != "BlbS" || little.Uint32(blob[4:]) != id {
			return nil, errTruncated
		}
		header, err := at(db, offset+16, uint64(little.Uint32(blob[12:])))
		if err != nil {
			return nil, err
		}
		if headers = append(headers, header); len(headers) > maxPackages {
			return nil, tooMany(maxPackages, "packages")
		}
	}
	return headers, nil
}

// Of Berkeley DB's db_page.h: offsets of a page, types of pages and of items.
const (
	bdbMeta     = 512 // bytes of the first page that are read
	bdbHead     = 26  // bytes of a page's header
	bdbHashMeta = 8
	bdbUnsorted = 2
	bdbHash     = 13
	bdbOverflow = 7
	bdbInline   = 1
	bdbOffPage  = 3
)

func isBDB(db []byte, order binary.ByteOrder) bool { return order.Uint32(db[12:]) == 0x061561 }

// readBDB returns the headers of a Packages (Berkeley DB's hash): values that are longer than a part of a page are in
// a chain of overflow pages.
func readBDB(db []byte) (headers [][]byte, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	if !isBDB(db, order) {
		order = binary.BigEndian
	}
	size, last := uint64(order.Uint32(db[20:])), uint64(order.Uint32(db[32:]))
	if size < 512 || size > 65536 || size&(size-1) != 0 || db[24] != 0 || db[25] != bdbHashMeta {
		return nil, errUnknown
	}
	pages := bdb{db, order, size, last + 1}
	if _, err := at(db, last*size, size); err != nil {
		return nil, err
	}
	for n := range pages.count {
		if headers, err = pages.values(headers, db[n*size:(n+1)*size]); err != nil {
			return nil, err
		}
	}
	return headers, nil
}

type bdb struct {
	db    []byte
	order binary.ByteOrder
	size  uint64 // of a page
	count uint64 // of pages
}

// values adds those of a page.
func (b bdb) values(headers [][]byte, page []byte) ([][]byte, error) {
	if page[25] != bdbHash && page[25] != bdbUnsorted {
		return headers, nil
	}
	items := uint64(b.order.Uint16(page[20:]))
	index, err := at(page, bdbHead, 2*items)
	if err != nil || items%2 != 0 {
		return nil, errTruncated
	}
	for ; len(index) > 0; index = index[4:] { // of a key, and of its value
		header, err := b.value(page, uint64(b.order.Uint16(index)), uint64(b.order.Uint16(index[2:])))
		if err != nil {
			return nil, err
		}
		if header != nil {
			headers = append(headers, header)
		}
	}
	if len(headers) > maxPackages {
		return nil, tooMany(maxPackages, "packages")
	}
	return headers, nil
}

// value returns the value that is on a page from one offset to the next; nil for the counter that is stored beside the
// packages.
func (b bdb) value(page []byte, end, start uint64) ([]byte, error) {
	item, err := at(page, start, 1)
	switch {
	case err != nil || end <= start || end > b.size:
		return nil, errTruncated
	case item[0] == bdbInline && end-start == 5:
		return nil, nil
	case item[0] == bdbInline:
		return page[start+1 : end], nil
	case item[0] != bdbOffPage:
		return nil, errUnknown
	}
	if item, err = at(page, start, 12); err != nil {
		return nil, err
	}
	next, length := uint64(b.order.Uint32(item[4:])), uint64(b.order.Uint32(item[8:]))
	if length > uint64(len(b.db)) {
		return nil, errTruncated
	}
	value := make([]byte, 0, length)
	for next != 0 && uint64(len(value)) < length {
		overflow, err := at(b.db, next*b.size, b.size)
		if err != nil || overflow[25] != bdbOverflow {
			return nil, errTruncated
		}
		part, err := at(overflow, bdbHead, uint64(b.order.Uint16(overflow[22:])))
		if err != nil || len(part) == 0 {
			return nil, errTruncated
		}
		value, next = append(value, part...), uint64(b.order.Uint32(overflow[16:]))
	}
	if uint64(len(value)) != length {
		return nil, errTruncated
	}
	return value, nil
}
