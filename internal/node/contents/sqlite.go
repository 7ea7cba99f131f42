// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"encoding/binary"
	"strings"
)

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
