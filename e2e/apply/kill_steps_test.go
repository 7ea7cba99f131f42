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

// step is something that a pull does: a call to containerd, an answer of it, or a part of a request to the registry.
type step struct {
	name string
	nth  int // of that name, from the begin of the pull, from 1
}

func (s step) String() string { return fmt.Sprintf("%s #%d", s.name, s.nth) }

// A staging begins with its lease, and ends with its records, of which the pin is the last.
const leaseComes, recordComes = "Leases/Create", "Images/Create"

// The names of a call's later steps begin with the call's.
const (
	answered = ", answered"
	data     = ", data"      // the message with the first bytes that are written
	more     = ", more data" // a part of such a message, which HTTP/2 has cut in frames
	commit   = ", commit"
)

// orAnswer is, for a call, its answer.
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
	names   []string       // in the order of their first time
	staging map[string]int // seen until the pin came; what comes later belongs to the rest of the cycle
}

// set sets a trap; the zero step is one that never comes.
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

// come is called with each step; what it returns is whether that may pass.
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

// momentName is a moment's name as a step. Of data only those of Content/Write count: they are the bytes of a layer.
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
	// A message begins with a byte (not compressed) and its length in four.
	if len(m.Data) > 6 && m.Data[0] == 0 && m.Data[5] == 0x08 {
		if action, ok := writeActions[m.Data[6]]; ok {
			return name + action
		}
	}
	return name + more
}

// steps are those of a pull that nobody disturbs: of each name the first, the one in the middle and the last; of what
// only reads, the first.
func (r *killRig) steps() []step {
	r.t.Helper()
	var last *trap
	for range 2 { // the second one also lets go what the first one staged
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

// reads are calls that change nothing in containerd.
var reads = regexp.MustCompile(`/(Get|Info|List\w*|Plugins|Read|Stat|Version|\w+Status|ImageFsInfo)$`)
