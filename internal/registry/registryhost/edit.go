// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"crypto/sha256"
	"encoding/hex"
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

// What a hosts.toml was before, as its marks say. A copy also has the SHA-256 of what it is a copy of.
const (
	fromFile      = ""
	fromNothing   = "; there was no file"
	fromDirectory = "; there was no directory" // so disable removes the directory
	fromDefault   = "; a copy of _default/hosts.toml"
)

// The lines around each block in a hosts.toml. Within one, a line that begins with was is a line of the admin, which
// restore puts back, and the others are the agent's.
const (
	begin   = "# image-update-agent: the node's local registry, "
	remedy  = ". Remove it: image-update-agent local-registry disable "
	write   = " --write\n"
	was     = "#| "
	end     = "# image-update-agent: end\n"
	endOpen = "# image-update-agent: end; the line before had no end\n"
)

var beginLine = lazyregexp.New(`\A` + begin + `(fallback|gate)(|` + fromNothing + `|` + fromDirectory +
	`|` + fromDefault + `, sha256:([0-9a-f]{64}))` + remedy + `([^\s]{1,255})` + write + `\z`)

// keptFile is the file of the admin that earlier versions kept beside the hosts.toml that they made from it.
const keptFile = "hosts.toml.before-local-registry"

// earlierHeader matches the first lines of a hosts.toml of an earlier version, which wrote the whole file.
var earlierHeader = lazyregexp.New(`\A` + begin + `(fallback|gate)` + remedy + `([^\s]{1,255})` + write +
	`# Made from (hosts\.toml\.before-local-registry|no directory of its own|no hosts\.toml|_default/hosts\.toml)` +
	`, sha256:([0-9a-f]{64})\. Below this line: sha256:([0-9a-f]{64})\n`)

// marks are what the first lines of blocks say.
type marks struct {
	position localregistry.Position
	registry string
	from     string // one of the constants above
	sum      string // of the file that it is a copy of
}

func (m marks) line() string {
	from := m.from
	if from == fromDefault {
		from += ", sha256:" + m.sum
	}
	return begin + string(m.position) + from + remedy + m.registry + write
}

// block is what the agent has added to a hosts.toml.
type block struct {
	marks

	added string // its lines, without marks
}

// restore returns a hosts.toml as it was before edit, with what was changed outside of the blocks since. It returns
// false if there is no block.
func restore(text string) (admins string, is block, found bool, err error) {
	var out, added strings.Builder
	isIn := false
	for line := range strings.Lines(text) {
		m := beginLine().FindStringSubmatch(line)
		old, isOld := strings.CutPrefix(line, was)
		switch {
		case m != nil && isIn:
			return "", is, true, errUnended
		case m != nil:
			isIn, found = true, true
			from, _, _ := strings.Cut(m[2], ", sha256:")
			is.marks = marks{localregistry.Position(m[1]), m[4], from, m[3]}
		case !isIn:
			out.WriteString(line)
		case line == end:
			isIn = false
		case line == endOpen:
			isIn = false
			text := strings.TrimSuffix(out.String(), "\n")
			out.Reset()
			out.WriteString(text)
		case isOld:
			out.WriteString(old)
		default:
			added.WriteString(line)
		}
	}
	if isIn {
		return "", is, true, errUnended
	}
	is.added = added.String()
	return out.String(), is, found, nil
}

var errUnended = errors.New("a block of image-update-agent has no end")

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// The parts of a hosts.toml.
const (
	top    = iota // before the first table: the server's own keys
	header        // the table with the server's headers
	tables        // every other table: the hosts
)

// statement is a key with its value, the header of a table, or lines without either, with every byte of their lines.
type statement struct {
	text   string
	part   int
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

// hostsFile is a hosts.toml as statements, in order.
type hostsFile struct {
	all   []statement
	whole map[string]any
}

func parseHostsFile(text string) (hostsFile, error) {
	var file hostsFile
	if err := toml.Unmarshal([]byte(text), &file.whole); err != nil {
		return hostsFile{}, outside.Syntax("TOML", err)
	}
	part, begun := top, ""
	for line := range strings.Lines(text) {
		begun += line
		s := statement{text: begun}
		if toml.Unmarshal([]byte(begun), &s.values) != nil {
			continue // a multi-line value
		}
		begun = ""
		if _, isHeader := s.says("header"); s.isTable() && isHeader {
			part = header
		} else if s.isTable() {
			part = tables
		}
		s.part = part
		file.all = append(file.all, s)
	}
	if begun != "" {
		return hostsFile{}, errors.New("not TOML that can be edited line by line")
	}
	return file, nil
}

// hasTables reports whether the file has a table of hosts.
func (f hostsFile) hasTables() bool {
	return slices.ContainsFunc(f.all, func(s statement) bool { return s.part == tables })
}

// server returns the value of the key; empty if there is none.
func (f hostsFile) server() string {
	for _, s := range f.all {
		if v, ok := s.says("server"); ok && s.part == top {
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
	byURL, _ := all.(map[string]any)
	for name, table := range byURL {
		if !has(table, "dial_timeout") {
			hosts = append(hosts, name)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// editor writes a hosts.toml with blocks.
type editor struct {
	strings.Builder

	marks marks
}

// block writes lines of the agent in place of the admin's.
func (e *editor) block(ours, admins string) {
	isOpen := e.Len() > 0 && !strings.HasSuffix(e.String(), "\n")
	if isOpen {
		e.WriteByte('\n')
	}
	e.WriteString(e.marks.line() + ours)
	for line := range strings.Lines(admins) {
		e.WriteString(was + line)
		if !strings.HasSuffix(line, "\n") {
			isOpen = true
			e.WriteByte('\n')
		}
	}
	if isOpen {
		e.WriteString(endOpen)
		return
	}
	e.WriteString(end)
}

// edits returns the ways to add the local registry. last is the host that containerd asks last.
func (f hostsFile) edits(m marks, last string) (texts []string) {
	if m.position == localregistry.Gate {
		return []string{f.edit(m, upstream{})}
	}
	for _, u := range upstreams(f.server(), last) {
		texts = append(texts, f.edit(m, u))
	}
	return texts
}

// edit adds the local registry to the hosts: as gate before the first of them; as fallback as the server, which
// containerd asks last, and the former server becomes the last of the hosts. Every other byte stays.
func (f hostsFile) edit(m marks, u upstream) string {
	e := editor{marks: m}
	capable := "capabilities = [\"pull\", \"resolve\"]\n"
	if m.position == localregistry.Gate {
		first := slices.IndexFunc(f.all, statement.isTable)
		if first < 0 {
			first = len(f.all)
		}
		e.WriteString(textOf(f.all[:first]))
		e.block("[host."+strconv.Quote(localregistry.URL)+"]\n"+capable, "")
		e.WriteString(textOf(f.all[first:]))
		return e.String()
	}
	server := "server = " + strconv.Quote(localregistry.URL) + "\n" + capable
	for n, s := range f.all {
		if n == 0 && s.part != top {
			e.block(server, "")
		}
		if n > 0 && s.part == f.all[n-1].part {
			continue
		}
		run := f.all[n:]
		if end := slices.IndexFunc(run, func(o statement) bool { return o.part != s.part }); end >= 0 {
			run = run[:end]
		}
		switch s.part {
		case top:
			e.block(server, textOf(run))
		case header:
			e.block("", textOf(run))
		default:
			e.WriteString(textOf(run))
		}
	}
	if len(f.all) == 0 {
		e.block(server, "")
	}
	e.block(f.tableOf(u), "")
	return e.String()
}

func textOf(all []statement) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString(s.text)
	}
	return b.String()
}

// upstream is the host that containerd asks last: the server of the file, or the namespace itself.
type upstream struct {
	url        string // as the new table names it
	implicit   bool   // hosts.toml names no server: containerd ignores its capabilities and override_path
	skipVerify bool   // for an implicit one: containerd does not verify localhost
}

// upstreams returns the ways to name the server of a file, or the namespace itself, as a host. If another host of the
// file has that name, the name with containerd's default path is used instead.
func upstreams(server, last string) []upstream {
	if server != "" {
		return []upstream{{url: server}, {url: server + "/v2"}, {url: server + "/"}}
	}
	all := []upstream{{url: last, implicit: true}, {url: last + "/v2", implicit: true}}
	for _, path := range []string{"", "/v2"} {
		plain := "http://" + strings.TrimPrefix(strings.TrimPrefix(last, "https://"), "http://") + path
		all = append(all, upstream{plain, true, true}, upstream{last + path, true, true})
	}
	return all
}

// tableOf returns the former server as a table of hosts, with its keys and headers.
func (f hostsFile) tableOf(u upstream) string {
	var b strings.Builder
	table := "host." + strconv.Quote(u.url)
	b.WriteString("[" + table + "]\n")
	timeout := false
	var headers []statement
	for _, s := range f.all {
		_, isServer := s.says("server")
		_, isCapability := s.says("capabilities")
		_, isPath := s.says("override_path")
		switch {
		case s.part == header:
			headers = append(headers, s)
		case s.part != top || len(s.values) == 0 || isServer || u.implicit && (isCapability || isPath):
		default:
			if _, ok := s.says("dial_timeout"); ok {
				timeout = true
			}
			writeLine(&b, s.text)
		}
	}
	if u.skipVerify {
		b.WriteString("skip_verify = true\n")
	}
	if !timeout {
		b.WriteString("dial_timeout = " + strconv.Quote(dialTimeout) + "\n")
	}
	for i, s := range headers {
		if i == 0 {
			s.text = headerHead().ReplaceAllLiteralString(s.text, "["+table+".header]")
		}
		writeLine(&b, s.text)
	}
	return b.String()
}

// headerHead matches the header of the table with the server's headers.
var headerHead = lazyregexp.New(`(?i)^[ \t]*\[[ \t]*["']?header["']?[ \t]*\]`)

// writeLine writes a statement unchanged; the last line of a file may lack its newline.
func writeLine(b *strings.Builder, text string) {
	b.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
}
