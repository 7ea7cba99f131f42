// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// askEnv is the variable with which `make neighbours` asks the programs themselves, and writes down what they answer.
const askEnv = "IUA_NEIGHBOURS"

// makeIt ends a message about a record that does not fit.
const makeIt = "run make neighbours, which asks the program anew and writes the record"

// judge answers with a neighbour's own code. Usually its answers are those of the record beside the test: nothing is
// built to be asked the same questions again. With askEnv, and for the new inputs of `make soak`, it is the program.
// It is safe for concurrent use.
type judge struct {
	t       *testing.T
	name    string // of the record
	version string // of the program

	mu    sync.Mutex
	live  func(question []byte) (answer []byte)
	known record
	asked record
}

// record has the answers of a program by the sum of what it was asked, its input included.
type record map[string]string

// recordFile is the record on disk: each answer once.
type recordFile struct {
	Version string           `json:"version"`
	Answers []recordedAnswer `json:"answers"`
}

type recordedAnswer struct {
	Answer string `json:"answer"`
	To     string `json:"to"` // the sums, each of sumLength characters
}

const sumLength = 8

// isLive tells whether the programs themselves are asked: to write the record, or about the new inputs of `make soak`.
func isLive() bool {
	return isRecording() || os.Getenv("IUA_SEED") != "" || os.Getenv("IUA_ROUNDS") != ""
}

func isRecording() bool { return os.Getenv(askEnv) != "" }

// startJudge returns the judge that is the program of a part of tools/setup, which answers lines of JSON.
func startJudge(t *testing.T, name, part, program string) *judge {
	t.Helper()
	j := newJudge(t, name, strings.TrimSpace(story.Shell(t, story.Checkout(t), "tools/setup version "+part)))
	if !isLive() {
		return j
	}
	dir := story.Shell(t, story.Checkout(t), "tools/setup where "+part)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, program))
	cmd.Env = append(os.Environ(), "GOGC=400") // saves a quarter of the time of cosign's code
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	requests, answers := json.NewEncoder(in), json.NewDecoder(out)
	j.live = func(question []byte) (answer []byte) {
		require.NoError(t, requests.Encode(json.RawMessage(question)))
		var says json.RawMessage
		require.NoError(t, answers.Decode(&says), "%s", question)
		return says
	}
	return j
}

// newJudge returns a judge with the answers of a record, whose version has to be that of today's program.
func newJudge(t *testing.T, name, version string) *judge {
	t.Helper()
	j := &judge{t: t, name: name, version: version, asked: record{}}
	recorded, known := readRecord(t, j.file())
	j.known = known
	switch {
	case isRecording():
		t.Cleanup(func() { j.write(recorded) })
	case !isLive():
		require.Equal(t, recorded, version, "%s: the record is of another version: %s", j.file(), makeIt)
		t.Cleanup(j.checkAllAsked)
	}
	return j
}

// input is what a neighbour reads to answer a question.
type input struct {
	dirs  []string // with the files that it reads; their own paths differ in each run
	about string   // what it reads that is not in files
	hides []string // texts that differ in each run, such as certificates and addresses, each with a name
}

// ask puts a question about an input, and decodes the answer. What differs in each run is not recorded: an answer may
// have a method settle that removes it.
func (j *judge) ask(question, answer any, in input) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	data, err := json.Marshal(question)
	require.NoError(j.t, err)
	hides, shows := in.replacers()
	var seen strings.Builder
	fmt.Fprintf(&seen, "%s\n%s\n", data, in.about)
	for _, dir := range in.dirs {
		require.NoError(j.t, describe(&seen, dir))
	}
	text := hides.Replace(seen.String())
	sum := sha256.Sum256([]byte(text))
	key := base64.RawURLEncoding.EncodeToString(sum[:])[:sumLength]
	said, known := j.known[key]
	if isLive() {
		require.NotNil(j.t, j.live, "this program is built with the tag neighbours only")
		require.NoError(j.t, json.Unmarshal(j.live(data), answer))
		if a, is := answer.(interface{ settle() }); is {
			a.settle()
		}
		said = hides.Replace(string(inJSON(j.t, answer)))
	} else if !known {
		require.FailNow(j.t, j.file()+": this input is not in the record: "+makeIt, "%s", text)
	}
	j.asked[key] = said
	require.NoError(j.t, json.Unmarshal([]byte(shows.Replace(said)), answer))
}

// replacers return what hides the texts that differ in each run, and what shows them again.
func (in input) replacers() (hides, shows *strings.Replacer) {
	var there, back []string
	add := func(text, name string) {
		there, back = append(there, text, "<"+name+">"), append(back, "<"+name+">", text)
	}
	for n, dir := range in.dirs {
		add(dir, fmt.Sprint("directory ", n))
	}
	for n := 0; n+1 < len(in.hides); n += 2 {
		add(in.hides[n], in.hides[n+1])
	}
	return strings.NewReplacer(there...), strings.NewReplacer(back...)
}

// describe writes what is in a directory: names, kinds, modes, contents, targets of links.
func describe(to *strings.Builder, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "%q %v\n", strings.TrimPrefix(path, dir), info.Mode())
		switch {
		case entry.Type().IsRegular():
			data, err := os.ReadFile(path)
			to.Write(data)
			return err
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			to.WriteString(target)
			return err
		}
		return nil
	})
}

// checkAllAsked fails if the record has answers to other inputs than those of today.
func (j *judge) checkAllAsked() {
	isPart := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if !j.t.Failed() && !isPart {
		assert.Len(j.t, j.asked, len(j.known), "%s: the record has other inputs: %s", j.file(), makeIt)
	}
}

func (j *judge) file() string { return filepath.Join("testdata", "answers", j.name+".json.gz") }

// write writes the record, unless the agent disagrees with an answer of it. It fails if the program has another answer
// than before to a question.
func (j *judge) write(before string) {
	if j.t.Failed() || len(j.asked) == 0 {
		j.t.Logf("%s: not written", j.file())
		return
	}
	writeRecord(j.t, j.file(), j.version, j.asked)
	for key, said := range j.asked {
		if was, known := j.known[key]; known && was != said {
			assert.Equal(j.t, was, said, "%s: another answer than that of %s; the new one is written: see what it means for the agent",
				j.file(), before)
		}
	}
	j.t.Logf("%s: %d answers of %s written", j.file(), len(j.asked), j.version)
}

// required returns the version of a module in go.mod, whose code answers in this process.
func required(t *testing.T, module string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(story.Checkout(t), "e2e/go.mod"))
	require.NoError(t, err)
	_, version, found := strings.Cut(string(text), "\t"+module+" ")
	require.True(t, found, module)
	return strings.Fields(version)[0]
}

func readRecord(t *testing.T, path string) (version string, answers record) {
	t.Helper()
	answers = record{}
	packed, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", answers
	}
	require.NoError(t, err)
	defer packed.Close()
	var file recordFile
	text, err := gzip.NewReader(packed)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(text).Decode(&file))
	for _, a := range file.Answers {
		for sums := a.To; len(sums) >= sumLength; sums = sums[sumLength:] {
			answers[sums[:sumLength]] = a.Answer
		}
	}
	return file.Version, answers
}

func writeRecord(t *testing.T, path, version string, answers record) {
	t.Helper()
	keys := map[string][]string{}
	for key, said := range answers {
		keys[said] = append(keys[said], key)
	}
	file := recordFile{Version: version}
	for _, said := range slices.Sorted(maps.Keys(keys)) {
		slices.Sort(keys[said])
		file.Answers = append(file.Answers, recordedAnswer{said, strings.Join(keys[said], "")})
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(w).Encode(file))
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, packed.Bytes(), 0o644))
}
