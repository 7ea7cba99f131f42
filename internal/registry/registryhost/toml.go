// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// dialTimeout is containerd's time limit to connect to the host before the local registry: a network that drops packets
// would take 30 s each time, for one pod after another. A connection within 2 s is usual even after a lost SYN, which
// the kernel repeats after 1 s. containerd before 2.1 does not know the key and ignores it.
const dialTimeout = "2s"

// statement is a key with its value, the header of a table, or lines without either, with every byte of their lines.
type statement struct {
	text   string
	values map[string]any // its own values
}

// isTable reports whether the statement is the header of a table.
func (s statement) isTable() bool { return strings.HasPrefix(strings.TrimLeft(s.text, " \t"), "[") }

// says returns the value of a key. containerd ignores the case of keys.
func (s statement) says(key string) (value any, ok bool) {
	for k, v := range s.values {
		if strings.EqualFold(k, key) {
			return v, true
		}
	}
	return nil, false
}

// hostsFile is a hosts.toml split into movable parts.
type hostsFile struct {
	top    []statement // before the first table: the server's own keys
	header []statement // the table with the server's headers, if there is one
	tables []statement // every other table: the hosts
	whole  map[string]any
}

func parseHostsFile(text string) (hostsFile, error) {
	var file hostsFile
	if err := toml.Unmarshal([]byte(text), &file.whole); err != nil {
		return hostsFile{}, outside.Syntax("TOML", err)
	}
	part := &file.top
	begun := ""
	for line := range strings.Lines(text) {
		begun += line
		s := statement{text: begun}
		if toml.Unmarshal([]byte(begun), &s.values) != nil {
			continue // a multi-line value
		}
		begun = ""
		if _, isHeader := s.says("header"); s.isTable() && isHeader {
			part = &file.header
		} else if s.isTable() {
			part = &file.tables
		}
		*part = append(*part, s)
	}
	if begun != "" {
		return hostsFile{}, errors.New("not TOML that is understood line by line")
	}
	return file, nil
}

// upstream is the host that containerd asks last: the server of the file, or the namespace itself.
type upstream struct {
	url        string // as the new table names it
	implicit   bool   // hosts.toml names no server: containerd ignores its capabilities and override_path
	skipVerify bool   // for an implicit one: containerd does not verify localhost
}

// server returns the value of the key; empty if there is none.
func (f hostsFile) server() string {
	for _, s := range f.top {
		if v, ok := s.says("server"); ok {
			text, _ := v.(string)
			return text
		}
	}
	return ""
}

// has reports whether a table has a key.
func has(table any, key string) bool {
	keys, _ := table.(map[string]any)
	_, ok := statement{values: keys}.says(key)
	return ok
}

// patientHosts returns the hosts for whose connection containerd waits 30 s.
func (f hostsFile) patientHosts() (hosts []string) {
	all, _ := statement{values: f.whole}.says("host")
	tables, _ := all.(map[string]any)
	for name, table := range tables {
		if !has(table, "dial_timeout") {
			hosts = append(hosts, name)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// withFallback makes the local registry the server, which containerd asks last, and the former server the last of the
// hosts.
func (f hostsFile) withFallback(u upstream) string {
	var b strings.Builder
	b.WriteString("server = " + strconv.Quote(localregistry.URL) + "\ncapabilities = [\"pull\", \"resolve\"]\n\n")
	writeAll(&b, f.tables)
	table := "host." + strconv.Quote(u.url)
	b.WriteString("[" + table + "]\n")
	timeout := false
	for _, s := range f.top {
		_, isServer := s.says("server")
		_, isCapability := s.says("capabilities")
		_, isPath := s.says("override_path")
		if isServer || u.implicit && (isCapability || isPath) {
			continue
		}
		if _, ok := s.says("dial_timeout"); ok {
			timeout = true
		}
		writeAll(&b, []statement{s})
	}
	if u.skipVerify {
		b.WriteString("skip_verify = true\n")
	}
	if !timeout {
		b.WriteString("dial_timeout = " + strconv.Quote(dialTimeout) + "\n")
	}
	for i, s := range f.header {
		if i == 0 {
			s.text = headerHead().ReplaceAllLiteralString(s.text, "["+table+".header]")
		}
		writeAll(&b, []statement{s})
	}
	return b.String()
}

// headerHead matches the header of the table with the server's headers.
var headerHead = lazyregexp.New(`(?i)^[ \t]*\[[ \t]*["']?header["']?[ \t]*\]`)

// withGate makes the local registry the first of the hosts.
func (f hostsFile) withGate() string {
	var b strings.Builder
	writeAll(&b, f.top)
	b.WriteString("[host." + strconv.Quote(localregistry.URL) + "]\ncapabilities = [\"pull\", \"resolve\"]\n\n")
	writeAll(&b, f.header)
	writeAll(&b, f.tables)
	return b.String()
}

// writeAll writes statements unchanged; the last line of a file may lack its newline.
func writeAll(b *strings.Builder, all []statement) {
	for _, s := range all {
		b.WriteString(s.text)
		if !strings.HasSuffix(s.text, "\n") {
			b.WriteByte('\n')
		}
	}
}
