// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// dialTimeout is how long containerd may wait for a connection to the host that the own host stands behind: a network
// that drops packets would take 30 s each time. containerd before 2.1 does not know the key and ignores it.
const dialTimeout = "5s"

// statement is a key with its value, the head of a table, or lines without either, with every byte of their lines.
type statement struct {
	text   string
	values map[string]any // what it says by itself
}

// isTable returns whether the statement is the head of a table.
func (s statement) isTable() bool { return strings.HasPrefix(strings.TrimLeft(s.text, " \t"), "[") }

// says returns the value of a key. containerd takes keys in any letters.
func (s statement) says(key string) (value any, ok bool) {
	for k, v := range s.values {
		if strings.EqualFold(k, key) {
			return v, true
		}
	}
	return nil, false
}

// hostsFile is a hosts.toml in the parts that we move.
type hostsFile struct {
	top    []statement // before the first table: the server's own keys
	header []statement // the table with the server's headers, where there is one
	tables []statement // every other table: the hosts
}

func parseHostsFile(text string) (hostsFile, error) {
	var whole map[string]any
	if err := toml.Unmarshal([]byte(text), &whole); err != nil {
		return hostsFile{}, fmt.Errorf("no TOML: %w", err)
	}
	var file hostsFile
	part := &file.top
	begun := ""
	for line := range strings.Lines(text) {
		begun += line
		s := statement{text: begun}
		if toml.Unmarshal([]byte(begun), &s.values) != nil {
			continue // a value of several lines
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
		return hostsFile{}, errors.New("no TOML that is understood line by line")
	}
	return file, nil
}

// upstream is the host that containerd asks last: the server of the file, or the namespace's own host.
type upstream struct {
	url        string // as the new table names it
	implicit   bool   // hosts.toml names no server: containerd takes neither capabilities nor override_path of it
	skipVerify bool   // for an implicit one: containerd does not verify localhost
}

// server returns the value of the key; empty: none.
func (f hostsFile) server() string {
	for _, s := range f.top {
		if v, ok := s.says("server"); ok {
			text, _ := v.(string)
			return text
		}
	}
	return ""
}

// withFallback makes the own host the server, which containerd asks last, and the former server the last of the hosts.
func (f hostsFile) withFallback(u upstream) string {
	var b strings.Builder
	b.WriteString("server = " + strconv.Quote(ownhost.URL) + "\ncapabilities = [\"pull\", \"resolve\"]\n\n")
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
			s.text = headerHead.ReplaceAllLiteralString(s.text, "["+table+".header]")
		}
		writeAll(&b, []statement{s})
	}
	return b.String()
}

// headerHead is the head of the table with the server's headers.
var headerHead = regexp.MustCompile(`(?i)^[ \t]*\[[ \t]*["']?header["']?[ \t]*\]`)

// withGate makes the own host the first of the hosts.
func (f hostsFile) withGate() string {
	var b strings.Builder
	writeAll(&b, f.top)
	b.WriteString("[host." + strconv.Quote(ownhost.URL) + "]\ncapabilities = [\"pull\", \"resolve\"]\n\n")
	writeAll(&b, f.header)
	writeAll(&b, f.tables)
	return b.String()
}

// writeAll writes statements as they are; the last line of a file may have no end.
func writeAll(b *strings.Builder, all []statement) {
	for _, s := range all {
		b.WriteString(s.text)
		if !strings.HasSuffix(s.text, "\n") {
			b.WriteByte('\n')
		}
	}
}
