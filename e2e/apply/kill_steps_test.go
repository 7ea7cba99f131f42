// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// step is an event of a pull: a call to containerd, its answer, or a part of a request to the registry.
type step struct {
	name string
	nth  int // of that name, since the start of the pull, from 1
}

func (s step) String() string { return fmt.Sprintf("%s #%d", s.name, s.nth) }

// A staging begins with its lease, and ends with its records, the pin last.
const leaseComes, recordComes = "Leases/Create", "Images/Create"

// The names of a call's later steps begin with the call's name.
const (
	answered = ", answered"
	data     = ", data"      // the message with the first written bytes
	more     = ", more data" // a further part of such a message, which HTTP/2 has split into frames
	commit   = ", commit"
)

// orAnswer returns, for a call, its answer.
func (s step) orAnswer() step {
	if strings.Contains(s.name, "/") && !strings.Contains(s.name, ",") {
		s.name += answered
	}
	return s
}

// trap counts the steps of a pull, from the creation of its lease on, and stops it at one of them.
type trap struct {
	at     step
	sprung chan struct{}
	pass   chan bool

	lock    sync.Mutex
	begun   bool
	seen    map[string]int
	names   []string       // in order of the first occurrence
	staging map[string]int // counted until the pin; later ones belong to the rest of the cycle
}

// set sets a trap; the zero step never occurs.
func (r *killRig) set(at step) *trap {
	trap := &trap{at: at, sprung: make(chan struct{}), pass: make(chan bool, 1), seen: map[string]int{}}
	r.tap.Watch(func(m node.Moment) bool { return trap.come(momentName(m)) })
	r.Registry.Intercept(r.Registry.Watch(func(q node.Request, p node.Part) {
		trap.come(fmt.Sprint(q.Method, " ", q.Kind, []string{"", ", half", ", all"}[p]))
	}))
	return trap
}

func (r *killRig) unset() {
	r.tap.Watch(nil)
	r.Registry.Intercept(nil)
}

// release lets the step pass, or not.
func (t *trap) release(pass bool) { t.pass <- pass }

// come is called for each step; it returns whether the step may pass.
func (t *trap) come(name string) bool {
	t.lock.Lock()
	if name == leaseComes {
		t.begun = true
	}
	if !t.begun || name == "" {
		t.lock.Unlock()
		return true
	}
	if t.seen[name] == 0 {
		t.names = append(t.names, name)
	}
	t.seen[name]++
	if name == recordComes {
		t.staging = maps.Clone(t.seen)
	}
	caught := t.at == step{name: name, nth: t.seen[name]}
	t.lock.Unlock()
	if !caught {
		return true
	}
	close(t.sprung)
	return <-t.pass
}

// writeActions are the messages of a stream Content/Write by their first field (WriteAction in containerd's
// api/services/content/v1/content.proto); STAT is 0 and not sent.
var writeActions = map[byte]string{1: data, 2: commit}

// momentName returns a moment's name as a step. Only the data of Content/Write counts: the bytes of a layer.
func momentName(m node.Moment) string {
	parts := strings.Split(m.Method, ".")
	name := parts[len(parts)-1]
	switch m.Event {
	case node.Called:
		return name
	case node.Answered:
		return name + answered
	}
	if name != "Content/Write" {
		return ""
	}
	// A message begins with a byte (not compressed) and its length in four bytes.
	if len(m.Data) > 6 && m.Data[0] == 0 && m.Data[5] == 0x08 {
		if action, ok := writeActions[m.Data[6]]; ok {
			return name + action
		}
	}
	return name + more
}

// steps returns the steps of an undisturbed pull: of each name the first, the middle and the last one; of read-only
// calls, the first.
func (r *killRig) steps() []step {
	r.t.Helper()
	var last *trap
	for range 2 { // the second one also releases the first one's staging
		p := r.publish()
		last = r.set(step{})
		begin := time.Now()
		s := story.Cycle(r.t, r.Node, 0)
		r.undisturbed = time.Since(begin)
		r.unset()
		require.Equal(r.t, status.StateStaged, s.State, s.Reason)
		r.whole(p)
	}
	r.staging = last.staging
	var steps []step
	for _, name := range last.names {
		if strings.HasSuffix(name, answered) {
			continue // orAnswer
		}
		count := last.seen[name]
		nths := []int{1, (count + 1) / 2, count}
		if reads.MatchString(name) {
			nths = nths[:1]
		}
		for _, nth := range slices.Compact(nths) {
			steps = append(steps, step{name, nth})
		}
	}
	return steps
}

// reads matches calls that do not change containerd.
var reads = regexp.MustCompile(`/(Get|Info|List\w*|Plugins|Read|Stat|Version|\w+Status|ImageFsInfo)$`)
