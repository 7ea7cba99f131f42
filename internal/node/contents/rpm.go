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

// sqlite is a database file, see https://www.sqlite.org/fileformat.html.
type sqlite struct {
	db     []byte
	page   uint64 // bytes of a page
	usable uint64 // of them
	left   int    // pages that may still be read, so that a circle ends
}

// readSQLite returns the headers of an rpmdb.sqlite: the column blob of its table Packages (hnum INTEGER PRIMARY KEY,
// blob BLOB).
func readSQLite(db []byte) (headers [][]byte, err error) {
	if len(db) < 512 {
		return nil, errTruncated
	}
	s := sqlite{db: db, page: uint64(binary.BigEndian.Uint16(db[16:]))}
	if s.page == 1 {
		s.page = 65536
	}
	s.usable = s.page - uint64(db[20])
	if s.page < 512 || s.page&(s.page-1) != 0 || s.usable < 480 {
		return nil, errUnknown
	}
	if uint64(binary.BigEndian.Uint32(db[28:]))*s.page > uint64(len(db)) {
		return nil, errTruncated
	}
	s.left = 4 + len(db)/int(s.page)
	root := uint64(0)
	err = s.walk(1, 0, func(columns [][]byte) error { // sqlite_schema: type, name, tbl_name, rootpage, sql
		if len(columns) > 3 && string(columns[0]) == "table" && strings.EqualFold(string(columns[1]), "Packages") {
			for _, b := range columns[3] {
				root = root<<8 | uint64(b)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.walk(root, 0, func(columns [][]byte) error {
		if len(columns) < 2 {
			return errTruncated
		}
		if headers = append(headers, columns[1]); len(headers) > maxPackages {
			return tooMany(maxPackages, "packages")
		}
		return nil
	})
	return headers, err
}

// maxDepth is more than the depth of any tree of a bounded file.
const maxDepth = 20

// walk calls row with the columns of each row of the table whose tree begins at a page.
func (s *sqlite) walk(page uint64, depth int, row func(columns [][]byte) error) error {
	s.left--
	if page == 0 || depth > maxDepth || s.left < 0 {
		return errTruncated
	}
	body, err := at(s.db, (page-1)*s.page, s.page)
	if err != nil {
		return err
	}
	head := uint64(0)
	if page == 1 {
		head = 100 // of the file
	}
	const interior, leaf = 5, 13
	kind, cells, after := body[head], uint64(binary.BigEndian.Uint16(body[head+3:])), head+8
	if kind == interior {
		after += 4
	} else if kind != leaf {
		return errTruncated
	}
	pointers, err := at(body, after, 2*cells)
	if err != nil {
		return err
	}
	for ; len(pointers) > 0; pointers = pointers[2:] {
		cell := uint64(binary.BigEndian.Uint16(pointers))
		if cell+4 > s.page {
			return errTruncated
		}
		if kind == interior {
			err = s.walk(uint64(binary.BigEndian.Uint32(body[cell:])), depth+1, row)
		} else {
			err = s.leaf(body[cell:], row)
		}
		if err != nil {
			return err
		}
	}
	if kind == leaf {
		return nil
	}
	return s.walk(uint64(binary.BigEndian.Uint32(body[head+8:])), depth+1, row)
}

// leaf calls row with the columns of a cell: the length of its payload, its key, and the payload, the rest of which may
// be in overflow pages.
func (s *sqlite) leaf(cell []byte, row func(columns [][]byte) error) error {
	length, cell := varint(cell)
	_, cell = varint(cell)
	if length > uint64(len(s.db)) {
		return errTruncated
	}
	local := length
	if most := s.usable - 35; length > most {
		least := (s.usable-12)*32/255 - 23
		if local = least + (length-least)%(s.usable-4); local > most {
			local = least
		}
	}
	payload, err := at(cell, 0, local)
	if err != nil {
		return err
	}
	if local < length {
		next, err := at(cell, local, 4)
		if err != nil {
			return err
		}
		whole := append(make([]byte, 0, length), payload...)
		for uint64(len(whole)) < length {
			number := uint64(binary.BigEndian.Uint32(next))
			page, err := at(s.db, (number-1)*s.page, s.usable)
			if err != nil || number == 0 {
				return errTruncated
			}
			next, whole = page[:4], append(whole, page[4:min(s.usable, 4+length-uint64(len(whole)))]...)
		}
		payload = whole
	}
	columns, err := columnsOf(payload)
	if err != nil {
		return err
	}
	return row(columns)
}

// columnsOf splits a record: the length of its header, the type of each column, and the columns.
func columnsOf(record []byte) (columns [][]byte, err error) {
	length, rest := varint(record)
	used := uint64(len(record) - len(rest))
	if length < used || length > uint64(len(record)) {
		return nil, errTruncated
	}
	types, body := record[used:length], record[length:]
	for len(types) > 0 {
		var kind uint64
		kind, types = varint(types)
		size := uint64(0)
		switch {
		case kind >= 12:
			size = (kind - 12) / 2
		case kind <= 4:
			size = kind
		case kind == 5:
			size = 6
		case kind <= 7:
			size = 8
		}
		value, err := at(body, 0, size)
		if err != nil {
			return nil, err
		}
		columns, body = append(columns, value), body[size:]
	}
	return columns, nil
}

// varint reads sqlite's numbers of up to nine bytes, the last of which has eight bits.
func varint(b []byte) (n uint64, rest []byte) {
	for i, c := range b {
		if i == 8 {
			return n<<8 | uint64(c), b[9:]
		}
		if n = n<<7 | uint64(c&0x7f); c < 0x80 {
			return n, b[i+1:]
		}
	}
	return n, nil
}
