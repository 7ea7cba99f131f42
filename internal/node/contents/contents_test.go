// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestMain lets Read start this program as the reader; the others are readers that show what they
// may do.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		os.Exit(m.Run())
	}
	err := confine()
	switch os.Args[1] {
	case "rights":
		rights, _ := os.ReadFile("/proc/self/status")
		wanted := regexp.MustCompile(`(?m)^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs):.*$`)
		networks, _ := net.Interfaces()
		err = fmt.Errorf("%s; %d networks", strings.Join(wanted.FindAllString(string(rights), -1), "; "), len(networks))
	case "family":
		child := exec.Command("/proc/self/exe", "wait")
		child.ExtraFiles, child.Stdout = []*os.File{os.NewFile(3, "")}, os.Stdout
		err = child.Start()
	case "wait":
		<-time.After(time.Minute) // a select without a case would end at once, as a deadlock
	case "flood":
		_, err = os.Stdout.Write(bytes.Repeat([]byte(" "), maxAnswer+1)) // which would decode as no package
	case "talk":
		err = errors.New("the cause, and then " + strings.Repeat("more ", maxMessage))
	case "memory":
		wasted := make([]byte, 2*maxMemory)
		wasted[len(wasted)-1] = 1
		fmt.Fprintln(io.Discard, wasted[len(wasted)-1])
	default:
		err = Serve(os.Args[2:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// samples are files that real programs wrote, and the programs that list them.
var samples = map[string]struct {
	kind string
	list []string // a command, whose last argument is the directory; none where the list was recorded elsewhere
}{
	// Written by rpm 4.18, with packages removed again.
	"rpm-sqlite/rpmdb.sqlite": {RPM, []string{"rpm", "-qa", "--qf", rpmFormat, "--dbpath"}},
	// The same, written by db5.3_load.
	"rpm-bdb/Packages": {RPM, []string{"rpm", "-qa", "--qf", rpmFormat, "-D", "_db_backend bdb_ro", "--dbpath"}},
	// Of the image bci-base 15, shortened; its list is from anchore/go-rpmdb, as Debian's rpm cannot read it.
	"rpm-ndb/Packages.db": {RPM, nil},
	"dpkg/status": {Dpkg, []string{
		"dpkg-query", "-W", "-f", `${db:Status-Status} ${Package} ${Version} ${Architecture} ${source:Package}\n`, "--admindir",
	}},
	// Of Alpine 3.18; its list is from apk 3.0.6, which Debian does not have: apk query --installed.
	"apk/installed": {Apk, nil},
}

const rpmFormat = `%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE} %{ARCH} %{SOURCERPM}\n`

func database(tb testing.TB, name string) []byte {
	tb.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".gz"))
	require.NoError(tb, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(tb, err)
	db, err := io.ReadAll(unzipped)
	require.NoError(tb, err)
	return db
}

// lines is a list of packages as it is recorded.
func lines(packages []Package) []string {
	out := []string{}
	for _, p := range packages {
		out = append(out, strings.Join([]string{p.Name, p.Version, p.Arch, p.Source}, " "))
	}
	slices.Sort(out)
	return out
}

// The reader lists what rpm, dpkg-query and apk list. `make neighbours` asks them anew.
func TestListsAreThoseOfThePackageManagers(t *testing.T) {
	t.Parallel()
	for name, of := range samples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, filepath.Base(name))
			require.NoError(t, os.WriteFile(file, database(t, name), 0o600))
			record := filepath.Join("testdata", filepath.Dir(name), "list.txt")
			if os.Getenv("IUA_NEIGHBOURS") != "" && of.list != nil {
				require.NoError(t, os.WriteFile(record, []byte(strings.Join(ask(t, of.list, dir), "\n")+"\n"), 0o600))
			}
			recorded, err := os.ReadFile(record)
			require.NoError(t, err)
			opened, err := os.Open(file)
			require.NoError(t, err)
			packages, err := parse(of.kind, name, opened)
			require.NoError(t, err)
			require.NoError(t, opened.Close())
			assert.Equal(t, strings.Split(strings.TrimSpace(string(recorded)), "\n"), lines(packages))
		})
	}
}

// ask returns what the program lists, in the form of the reader.
func ask(t *testing.T, command []string, dir string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], dir)...).Output()
	require.NoError(t, err)
	var list []string
	for line := range strings.Lines(string(out)) {
		word := strings.Fields(line)
		switch {
		case command[0] == "rpm":
			word[1] = strings.TrimPrefix(word[1], "0:")
			word[3] = sourceName(word[3])
		case word[0] == "config-files":
			continue
		default:
			word = word[1:]
		}
		list = append(list, strings.Join(word, " "))
	}
	slices.Sort(list)
	return list
}

// A truncated database has an error, or all its packages: never some of them.
func TestTruncatedDatabasesAreErrors(t *testing.T) {
	t.Parallel()
	for name, of := range samples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t, name)
			read := map[string]func([]byte) ([]Package, error){RPM: readRPM, Dpkg: func(db []byte) ([]Package, error) { return readDpkg(db, false) }, Apk: readApk}[of.kind]
			all, err := read(db)
			require.NoError(t, err)
			for n := 1; n < 200; n++ {
				cut := db[:n*len(db)/200]
				if of.kind != RPM && cut[len(cut)-1] == '\n' {
					continue // as if the rest had not been installed
				}
				got, err := read(cut)
				if err == nil {
					assert.Equal(t, all, got, "%d of %d bytes", len(cut), len(db))
				}
			}
		})
	}
}

// What is not a database, and what is too large.
func TestBadDatabases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	require.NoError(t, os.WriteFile(huge, nil, 0o600))
	require.NoError(t, os.Truncate(huge, maxDatabase+1))
	many := filepath.Join(dir, "many")
	require.NoError(t, os.WriteFile(many, []byte(strings.Repeat("P:a\nV:1\n\n", maxPackages+1)), 0o600))
	elf, program := filepath.Join(dir, "elf"), make([]byte, 10_000)
	whole, err := os.Open(os.Args[0])
	require.NoError(t, err)
	_, err = io.ReadFull(whole, program)
	require.NoError(t, errors.Join(err, whole.Close()))
	require.NoError(t, os.WriteFile(elf, program, 0o600))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, c := range []struct{ kind, file, want string }{
		{RPM, huge, "134217729 bytes, at most 134217728"},
		{RPM, many, errUnknown.Error()},
		{RPM, empty, errUnknown.Error()},
		{Apk, many, "more than 20000 packages"},
		{Dpkg, "text.go", errTruncated.Error()},
		{Go, elf, errTruncated.Error()},
		{"snap", many, errUnknown.Error()},
	} {
		file, err := os.Open(c.file)
		require.NoError(t, err)
		got, err := parse(c.kind, c.file, file)
		require.NoError(t, file.Close())
		if c.kind == Dpkg { // a text without a field is a database without packages
			require.NoError(t, err)
			assert.Empty(t, got)
			continue
		}
		require.ErrorContains(t, err, c.want, "%v", c)
	}
}

// A distroless image has the file of each package as its maker wrote it.
func TestFieldsOfPackages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Package:a\nversion:  1\narchitecture:all\n":                                       {"a 1 all a"},
		"Package: a\nVersion: 1\nDescription: x\n Version: 2\n":                            {"a 1  a"},
		"Package: a\nStatus: deinstall ok config-files\nVersion: 1\n":                      {},
		"Package: a\nStatus: deinstall ok half-installed\nVersion: 1\nSource: b (1)\n":     {"a 1  b"},
		"Package: a\nStatus: purge ok not-installed\n\n\nPackage: b\r\nVersion: 2\r\n\r\n": {"b 2  b"},
	} {
		got, err := readDpkg([]byte(text), true)
		require.NoError(t, err, text)
		assert.Equal(t, want, lines(got), text)
	}
	got, err := readDpkg([]byte("Package: a\nVersion: 1\n"), false)
	require.NoError(t, err)
	assert.Empty(t, got, "dpkg-query lists it as not installed")
}

func FuzzRPM(f *testing.F) {
	for name, of := range samples {
		if of.kind == RPM {
			f.Add(database(f, name))
		}
	}
	f.Fuzz(func(t *testing.T, db []byte) {
		packages, err := readRPM(db)
		if err != nil {
			assert.Empty(t, packages)
		}
		assert.LessOrEqual(t, len(packages), maxPackages)
	})
}

// Whatever two images have, each package is the same in both, added, removed or changed, and the changes turn one list
// into the other.
func TestComparisonsOfThousandPairs(t *testing.T) {
	t.Parallel()
	packages := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) Package {
		return Package{
			Format: rapid.SampledFrom([]string{RPM, Go}).Draw(t, "format"), Name: rapid.StringMatching(`[a-f]`).Draw(t, "name"),
			Arch: rapid.SampledFrom([]string{"", "noarch"}).Draw(t, "arch"), Version: rapid.StringMatching(`[1-3]`).Draw(t, "version"),
		}
	}), func(p Package) Package { p.Version = ""; return p })
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			from, to := packages.Draw(t, "from"), packages.Draw(t, "to")
			changes, same := Compare(from, to)
			made := map[Package]bool{}
			for _, p := range from {
				made[p] = true
			}
			for _, c := range changes {
				p := Package{Format: c.Format, Name: c.Name, Arch: c.Arch, Version: c.From}
				require.Equal(t, c.Change == Added, c.From == "", "%v", c)
				require.Equal(t, c.Change == Removed, c.To == "", "%v", c)
				require.Equal(t, c.Change != Added, made[p], "%v", c)
				delete(made, p)
				if p.Version = c.To; c.To != "" {
					made[p] = true
				}
			}
			require.Len(t, made, len(to))
			for _, p := range to {
				require.True(t, made[p], "%v", p)
			}
			count := map[string]int{}
			for _, c := range changes {
				count[c.Change]++
			}
			require.Equal(t, len(from), same+count[Changed]+count[Removed])
			require.Equal(t, len(to), same+count[Changed]+count[Added])
		}
	})
}

// Several versions of one package are one line.
func TestSeveralVersionsAreOneChange(t *testing.T) {
	t.Parallel()
	p := func(version string) Package { return Package{Format: RPM, Name: "gpg-pubkey", Version: version} }
	changes, same := Compare([]Package{p("2"), p("1")}, []Package{p("3"), p("2"), p("3")})
	assert.Equal(t, []Change{{Change: Changed, Format: RPM, Name: "gpg-pubkey", From: "1, 2", To: "2, 3"}}, changes)
	assert.Zero(t, same)

	changes, same = Compare([]Package{p("1, 2"), {Name: "no version"}}, []Package{p("1"), p("2"), {Name: "no version", Version: "1"}})
	assert.Equal(t, []string{Changed, Changed}, []string{changes[0].Change, changes[1].Change})
	assert.Zero(t, same)
}

// The reading process has no right, also if root starts it, and ends at its limits.
func TestTheReaderHasNoRights(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer file.Close()
	files := []File{{Go, "bin/test", file}}
	packages, err := Read(t.Context(), files, "read")
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(packages, func(p Package) bool {
		return p.Format == Go && strings.HasSuffix(p.Name, "/image-update-agent") && p.Source == "bin/test"
	}), "%v", packages)

	_, err = Read(t.Context(), files, "talk")
	require.ErrorContains(t, err, "the cause, and then more")

	_, err = Read(t.Context(), files, "memory")
	require.ErrorContains(t, err, "memory") // the runtime says it in two ways

	_, err = Read(t.Context(), files, "rights")
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "NoNewPrivs: 1")
		return
	}
	require.EqualError(t, err, fmt.Sprintf("Uid: %d %[1]d %[1]d %[1]d; Gid: %[1]d %[1]d %[1]d %[1]d; Groups:  ; "+
		"CapPrm: 0000000000000000; CapEff: 0000000000000000; NoNewPrivs: 1; 1 networks", nobody))
}

// Whatever the reading process starts ends with it.
func TestTheReaderLeavesNothing(t *testing.T) {
	t.Parallel()
	alive, write, err := os.Pipe()
	require.NoError(t, err)
	_, err = Read(t.Context(), []File{{Go, "bin/x", write}}, "family")
	if os.Geteuid() != 0 { // only root's reader has processes of its own; of another user's, the answer does not count
		require.ErrorContains(t, err, "WaitDelay")
		return
	}
	require.NoError(t, err)
	require.NoError(t, write.Close())
	left, err := io.ReadAll(alive) // until no process has the other end
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, alive.Close())
}

func TestTheAnswerIsBounded(t *testing.T) {
	t.Parallel()
	_, err := Read(t.Context(), []File{{Go, "bin/x", os.Stdin}}, "flood")
	require.ErrorContains(t, err, "package reader: ")
}

// An answer that is too long, or has a text that cannot be shown whole, is no list.
func TestAnswersOfTheReader(t *testing.T) {
	t.Parallel()
	const one = `{"format":"rpm","name":"a","version":"1"}` + "\n"
	for title, c := range map[string]struct {
		answer string
		want   int
		err    string
	}{
		"none":               {"", 0, ""},
		"two":                {one + one, 2, ""},
		"the most":           {strings.Repeat(one, maxPackages), maxPackages, ""},
		"too many":           {strings.Repeat(one, maxPackages+1), 0, "more than 20000 packages"},
		"cut":                {one + one[:9], 0, "unexpected EOF"},
		"an escape sequence": {strings.Replace(one, "1", `\u001b[2J`, 1), 0, `package "a" "\x1b[2J": want at most 300 printable bytes`},
		"a long name":        {strings.Replace(one, "a\"", strings.Repeat("a", 301)+"\"", 2), 0, "want at most 300 printable bytes"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			packages, err := decode(strings.NewReader(c.answer))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			assert.Len(t, packages, c.want)
		})
	}
}

// tree makes layers, the uppermost first: "name" or "name=content" is a file, "name/" a directory, "-name" a whiteout,
// "name/!" an opaque directory, "name>target" a symlink, "name|" a pipe.
func tree(t *testing.T, layers ...[]string) Layers {
	t.Helper()
	var dirs []string
	for _, names := range layers {
		dir := t.TempDir()
		dirs = append(dirs, dir)
		for _, name := range names {
			require.NoError(t, plant(dir, name), name)
		}
	}
	l, err := OpenLayers(dirs)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

func plant(dir, name string) error {
	name, isWhiteout := strings.CutPrefix(name, "-")
	path := dir + "/" + name // not cleaned
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if isWhiteout {
		return unix.Mknod(path, unix.S_IFCHR, 0)
	}
	if name, is := strings.CutSuffix(path, "/!"); is {
		attribute := "user.overlay.opaque"
		if os.Geteuid() == 0 {
			attribute = "trusted.overlay.opaque"
		}
		return unix.Setxattr(name, attribute, []byte("y"), 0)
	}
	if name, is := strings.CutSuffix(path, "|"); is {
		return syscall.Mkfifo(name, 0o600)
	}
	if name, target, is := strings.Cut(path, ">"); is {
		return os.Symlink(target, name)
	}
	name, content, _ := strings.Cut(path, "=")
	if strings.HasSuffix(path, "/") {
		return os.MkdirAll(path, 0o755)
	}
	return os.WriteFile(name, []byte(content), 0o600)
}

// The files of an image are those that overlayfs would show, and no symlink, pipe or device is opened.
func TestLayersAreReadAsOverlayfsShowsThem(t *testing.T) {
	t.Parallel()
	const status, rpm, apk = "var/lib/dpkg/status", "var/lib/rpm/Packages", "lib/apk/db/installed"
	type layers = [][]string
	for title, c := range map[string]struct {
		layers layers
		want   []string // KIND=NAME=content
		err    string
	}{
		"no database":                     {layers{{"etc/passwd"}, {}}, nil, ""},
		"of a lower layer":                {layers{{"etc/x"}, {status + "=1"}, {status + "=2"}}, []string{"dpkg=" + status + "=1"}, ""},
		"a whiteout":                      {layers{{"-" + status}, {status}}, nil, ""},
		"a whiteout of a directory":       {layers{{"-var/lib"}, {status}}, nil, ""},
		"a file above a directory":        {layers{{"var/lib"}, {status}}, nil, ""},
		"an opaque directory":             {layers{{"var/lib/", "var/lib/!"}, {status}}, nil, ""},
		"a file in an opaque one":         {layers{{status + "=1", "var/!"}, {rpm}}, []string{"dpkg=" + status + "=1"}, ""},
		"a file below an opaque one":      {layers{{"var/x"}, {status + "=1", "var/!"}, {rpm}}, []string{"dpkg=" + status + "=1"}, ""},
		"two formats":                     {layers{{rpm + "=r"}, {status + "=d", apk + "=a"}}, []string{"apk=" + apk + "=a", "dpkg=" + status + "=d", "rpm=" + rpm + "=r"}, ""},
		"two databases of rpm":            {layers{{rpm}, {"usr/lib/sysimage/rpm/rpmdb.sqlite"}}, nil, "it is not known which of them rpm reads"},
		"a log of sqlite":                 {layers{{"var/lib/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite-wal=x"}}, nil, "changes that only sqlite can read"},
		"a journal of sqlite":             {layers{{"var/lib/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite-journal=x"}}, nil, "changes that only sqlite can read"},
		"updates of dpkg":                 {layers{{status, "var/lib/dpkg/updates/0001"}}, nil, "updates that only dpkg can read"},
		"an unfinished update":            {layers{{status + "=1", "var/lib/dpkg/updates/tmp.i"}}, []string{"dpkg=" + status + "=1"}, ""},
		"an empty log of sqlite":          {layers{{"var/lib/rpm/rpmdb.sqlite=x", "var/lib/rpm/rpmdb.sqlite-wal"}}, []string{"rpm=var/lib/rpm/rpmdb.sqlite=x"}, ""},
		"a symlink":                       {layers{{rpm + ">/etc/shadow"}}, nil, rpm + ": not a regular file"},
		"a pipe":                          {layers{{rpm + "|"}}, nil, rpm + ": not a regular file"},
		"a directory":                     {layers{{rpm + "/"}}, nil, rpm + ": not a regular file"},
		"a symlink to a directory":        {layers{{"var/lib/rpm>/etc", "usr/lib/sysimage/rpm/Packages=1"}}, []string{"rpm=usr/lib/sysimage/rpm/Packages=1"}, ""},
		"a symlink to the other place":    {layers{{"var/lib/rpm>../../usr/lib/sysimage/rpm", "usr/lib/sysimage/rpm/Packages=1"}}, []string{"rpm=usr/lib/sysimage/rpm/Packages=1"}, ""},
		"a symlink to a place of its own": {layers{{"srv/rpm/Packages=2", "etc/"}, {"var/lib/rpm>/opt/rpm", "opt>./etc/../srv"}}, []string{"rpm=srv/rpm/Packages=2"}, ""},
		"a symlink through nothing":       {layers{{"srv/rpm/Packages=2"}, {"var/lib/rpm>/opt/rpm", "opt>./nowhere/../srv"}}, nil, ""},
		"a symlink out of the layer":      {layers{{"var>../../../../../tmp", "tmp/lib/rpm/Packages=1"}}, []string{"rpm=tmp/lib/rpm/Packages=1"}, ""},
		"a symlink to itself":             {layers{{"var>../../../../../var"}}, nil, "var/lib/rpm: too many symlinks"},
		"a long symlink":                  {layers{{"a/", "var>" + strings.Repeat("a/../", 50)}}, nil, "var/lib/rpm: too many symlinks"},
		"two databases of apk":            {layers{{apk + "=1"}, {"usr/" + apk + "=2"}}, nil, "it is not known which of them apk reads"},
		"one database of apk":             {layers{{"lib>usr/lib", "usr/" + apk + "=1"}}, []string{"apk=usr/" + apk + "=1"}, ""},
		"a program in two places":         {layers{{"bin>usr/bin", "usr/bin/x=\x7fELF"}}, []string{"go=usr/bin/x=\x7fELF"}, ""},
		"a program of ko":                 {layers{{"ko-app/x=\x7fELF"}}, []string{"go=ko-app/x=\x7fELF"}, ""},
		"distroless": {layers{
			{status + ".d/base=2", status + ".d/base.md5sums", "-" + status + ".d/gone", "usr/bin/x=\x7fELF2", "usr/bin/y=#!"},
			{status + ".d/base=1", status + ".d/gone", status + ".d/tz=1", "usr/bin/x=\x7fELF1", "usr/bin/z>x"},
		}, []string{"dpkg=" + status + ".d/base=2", "dpkg=" + status + ".d/tz=1", "go=usr/bin/x=\x7fELF2"}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			files, err := tree(t, c.layers...).Find()
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			var got []string
			for _, f := range files {
				content, err := io.ReadAll(f)
				require.NoError(t, err)
				require.NoError(t, f.Close())
				got = append(got, f.Kind+"="+f.Name+"="+string(content))
			}
			if slices.Sort(got); c.err == "" {
				assert.Equal(t, c.want, got)
			}
		})
	}
}

// An image cannot have the reader open any number of files.
func TestFilesAreCounted(t *testing.T) {
	t.Parallel()
	var names []string
	for n := range maxFiles + 1 {
		names = append(names, fmt.Sprintf("var/lib/dpkg/status.d/p%d", n))
	}
	files, err := tree(t, names).Find()
	require.ErrorContains(t, err, "more than 512 files")
	for _, f := range files {
		require.NoError(t, f.Close())
	}
	_, _, err = tree(t, names[:maxFiles]).open("var/lib/dpkg/status.d/none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
