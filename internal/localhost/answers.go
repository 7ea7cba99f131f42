// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Result is how the own host answered a request.
type Result string

// The results.
const (
	Served  Result = "served"  // the tag or digest is in the table
	Unknown Result = "unknown" // it is not: containerd asks the next host
	Refused Result = "refused" // no HEAD of a manifest
)

// AnswersDir is the runtime directory of the own host, AnswersFile the journal of its answers in it. Its processes only
// add to it, one after the other; a boot begins a new one.
const (
	AnswersDir  = "/run/image-update-agent-localhost"
	AnswersFile = "answers"
)

// Answers is what the own host answered since the boot, or since its journal began anew at 64 KiB.
type Answers struct {
	Served, Unknown, Refused int
	// Last is when a tag was served last, by REGISTRY/REPOSITORY:TAG. A request by digest counts for a tag that names it.
	Last map[string]time.Time
}

// note adds an answer to the journal in a directory. What keeps it from that keeps no answer back, so there is no
// error.
func note(dir string, r Result, e ownhost.Entry, at time.Time) {
	path := filepath.Join(dir, AnswersFile)
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW
	if info, err := os.Lstat(path); err == nil && info.Size() >= maxAnswers {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	line := strconv.FormatInt(at.Unix(), 10) + " " + string(r)
	if r == Served {
		line += " " + imageOf(e)
	}
	_ = file.Chmod(0o644) // the umask of the service keeps it from the daemon
	_, _ = file.WriteString(line + "\n")
}

func imageOf(e ownhost.Entry) string { return e.Registry + "/" + e.Repository + ":" + e.Tag }

// AnswersAt reads the journal at path again when it changes. None is no error. The own host has a user of its own, so
// what it says is shown, and settles nothing.
func AnswersAt(path string) *nodefile.Cached[Answers] {
	return &nodefile.Cached[Answers]{Path: path, Limit: 2 * maxAnswers, AnyOwner: true, Parse: parseAnswers}
}

// parseAnswers skips lines that are none.
func parseAnswers(data []byte) (Answers, error) {
	a := Answers{Last: map[string]time.Time{}}
	for line := range strings.Lines(string(data)) {
		seconds, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		result, image, _ := strings.Cut(rest, " ")
		unix, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || outside.Text(image) != image {
			continue
		}
		switch Result(result) {
		case Served:
			a.Served++
			if _, ok := a.Last[image]; ok || len(a.Last) < ownhost.MaxEntries {
				a.Last[image] = outside.Time(time.Unix(unix, 0))
			}
		case Unknown:
			a.Unknown++
		case Refused:
			a.Refused++
		}
	}
	return a, nil
}
