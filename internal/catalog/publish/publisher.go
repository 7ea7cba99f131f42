// SPDX-License-Identifier: Apache-2.0

// Package publish changes release catalogs in a registry (see internal/catalog for the format, and internal/catalog/ops
// for what ops make of a version).
//
// # Words
//
//   - A Publisher acts on one catalog, with or without keys.
//   - A View is a channel as its next publisher finds it: its newest version, and the pending ops that count.
//   - A Verb makes a Draft of a View: the ops that its caller wants, or why not.
//   - Trust says which keys a channel has. What others have signed is named, and does not count.
//   - Out is a directory with everything that a version needs except its signature, which is made on another machine.
//
// # Promises
//
//   - A change that was reported as done is in the channel, or in an op that the next publisher folds. This needs no
//     lock and no compare-and-swap of the registry, and holds when a publisher dies at any request, and while others
//     prune. Where another publisher has asked for something else at the same time, the result says what does not hold.
//   - A result names every op in the version that the caller did not ask for.
//   - A batch is checked as a whole before anything is written.
//   - Without a key, a publisher does not change a signed channel.
//   - Every answer of a registry is bounded, and compared with its digest. Rounds, waits and times are bounded.
//
// Why no KMS and no PKCS#11: sigstore's four signers are 25.8 MB and 85 modules, and PKCS#11 needs cgo. Out is signed
// by any tool instead.
package publish

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// maxBy bounds the name of who publishes and the URL of the CI job, in bytes.
const maxBy = 256

// Options configure a Publisher.
type Options struct {
	Repository string // of the catalog
	// Name is the repository where nodes find the catalog; empty: Repository.
	Name string
	Keys []*Key // each signs each version and each op, and is trusted as one of the channel; none: nothing is signed
	Trust
	// AcceptUnsigned lets a publisher build on a version that is not signed.
	AcceptUnsigned bool
	// Base is the version that the next one builds upon, in the place of the channel's newest one. Ops that none of Keys
	// has signed do not count then. 0: the newest.
	Base uint64
	// State is a file that keeps the highest version of each channel; empty: no file.
	State string
	// By names who publishes, Run is the URL of the CI job: ops and the channel's log have both. Empty: not known.
	By, Run  string
	Store    store.Options
	Registry Registry         // nil: the one of Store
	Now      func() time.Time // nil: time.Now
	// Progress, if set, is called before each step, from any goroutine.
	Progress func(step string)
	Jobs     int // requests that run at once; 0: 8
}

// Publisher changes the channels of one catalog. It is safe for concurrent use.
type Publisher struct {
	reader

	keys     []*Key
	trust    Trust
	unsigned bool // AcceptUnsigned
	base     uint64
	by, run  string
	now      func() time.Time
	state    stateFile
}

// New returns a publisher. It sends no request.
func New(o Options) (*Publisher, error) {
	repository, err := release.NormalizeRepository(o.Repository)
	if err == nil {
		err = store.CheckRepository(repository)
	}
	if err != nil {
		return nil, &Error{Kind: KindInput, Object: "catalog", Text: "want a repository", Err: err}
	}
	known := repository
	if o.Name != "" {
		if known, err = release.NormalizeRepository(o.Name); err != nil {
			return nil, &Error{Kind: KindInput, Object: "name", Text: "want a repository", Err: err}
		}
	}
	p := &Publisher{
		keys: o.Keys, trust: o.Trust, unsigned: o.AcceptUnsigned, base: o.Base,
		by: outside.Line(o.By, maxBy), run: outside.Line(o.Run, maxBy), now: o.Now, state: stateFile{o.State},
		reader: reader{registry: o.Registry, repository: repository, name: known, progress: o.Progress, jobs: o.Jobs},
	}
	if n := countKeys(p.signing()); n > 0 && n < o.Require {
		return nil, refuse(KindInput, "require",
			"too few keys sign the next version: %d, want %d: use --key for each, or --out DIR", n, o.Require)
	}
	if p.registry == nil {
		if p.registry, err = store.New(o.Store); err != nil {
			return nil, err
		}
	}
	if p.jobs == 0 {
		p.jobs = jobs
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.progress == nil {
		p.progress = func(string) {}
	}
	return p, nil
}

// signing are the public keys of those that sign.
func (p *Publisher) signing() [][]byte {
	var out [][]byte
	for _, k := range p.keys {
		out = append(out, k.public)
	}
	return out
}

// countKeys returns how many of these keys differ.
func countKeys(pems [][]byte) int {
	different := map[string]bool{}
	for _, k := range pems {
		different[strings.TrimSpace(string(k))] = true
	}
	return len(different)
}

// keysOf returns the keys of a channel, whose name it checks.
func (p *Publisher) keysOf(channel string) (keys, error) {
	if err := CheckChannel(channel); err != nil {
		return keys{}, err
	}
	k, err := newKeys(p.trust.Require, p.trust.Accept, append(slices.Clone(p.trust.own(channel)), p.signing()...)...)
	if err != nil {
		return k, &Error{Kind: KindInput, Object: channel, Text: "its keys", Err: err}
	}
	return k, nil
}

// Name is the repository by which nodes know the catalog.
func (p *Publisher) Name() string { return p.name }

// CheckChannel checks the name of a channel. Its error has KindInput.
func CheckChannel(name string) error {
	err := catalog.CheckChannel(name)
	switch {
	case err == nil:
		return nil
	case isVersion(name):
		return refuse(KindInput, name, "want a channel without a version")
	case strings.ContainsAny(name, ":/@"):
		return refuse(KindInput, name, "not the name of a channel: the channel comes before images")
	}
	return &Error{Kind: KindInput, Object: name, Text: "not the name of a channel", Err: err}
}

// isVersion reports whether a word is CHANNEL@VERSION.
func isVersion(word string) bool {
	channel, number, _ := strings.Cut(word, "@")
	_, err := strconv.ParseUint(number, 10, 64)
	return err == nil && catalog.CheckChannel(channel) == nil
}

// checkClock refuses to publish by a clock that is more than a day ahead of the registry's.
func (p *Publisher) checkClock() error {
	dated, ok := p.registry.(interface{ Date() time.Time })
	if !ok {
		return nil
	}
	if at := dated.Date(); !at.IsZero() && p.now().After(at.Add(aheadOfRegistry)) {
		return refuse(KindClock, p.repository, "this machine's clock is %s ahead of the registry's, which says %s",
			p.now().Sub(at).Round(time.Minute), at.UTC().Format(time.RFC3339))
	}
	return nil
}

// aheadOfRegistry is how far this machine's clock may be ahead of the registry's: nodes refuse a version of more than a
// day ahead of their own.
const aheadOfRegistry = 24 * time.Hour

// Kind is why the catalog cannot be changed as asked.
type Kind string

// The kinds of errors.
const (
	KindChannel   Kind = "channel"   // there is no such channel
	KindExists    Kind = "exists"    // the channel exists already
	KindImage     Kind = "image"     // the channel lists no such image or release, or several
	KindTag       Kind = "tag"       // the registry has no such tag, or the tag floats
	KindDigest    Kind = "digest"    // the tag names another digest than the one that was given
	KindPlatform  Kind = "platform"  // the image is not for a platform
	KindWithdrawn Kind = "withdrawn" // the release was withdrawn
	KindAgain     Kind = "again"     // the channel has withdrawn the release, and the request does not offer it again
	KindSoak      Kind = "soak"      // the channel has not offered the release long enough
	KindSet       Kind = "set"       // a part of a set would be changed without the rest
	KindFrozen    Kind = "frozen"    // the channel is frozen, and the request adds or promotes
	KindSigned    Kind = "signed"    // the channel is signed, and there is no key
	KindUnsigned  Kind = "unsigned"  // a key is given, and what it would build upon has no valid signature
	KindOlder     Kind = "older"     // the channel went back to an older version than one that was published
	KindRaced     Kind = "raced"     // another publisher has published in the meantime
	KindClock     Kind = "clock"     // this machine's clock is ahead of the registry's
	KindImmutable Kind = "immutable" // the registry does not let the tag of the channel move
	KindTimeout   Kind = "timeout"   // the registry does not list what it has stored
	KindInput     Kind = "input"     // a file or an argument is not valid
)

// Error is why the catalog cannot be changed as asked.
type Error struct {
	Kind   Kind
	Object string // the channel, image, tag or file
	Text   string
	Near   []string // the nearest right things
	Err    error    // the cause; nil: there is none
	Base   uint64   // of KindUnsigned: the newest version that has a valid signature; 0: it is not known
}

func (e *Error) Error() string {
	text := e.Object + ": " + e.Text
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if len(e.Near) > 0 {
		text += ", did you mean " + strings.Join(e.Near, " or ") + "?"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(kind Kind, object, format string, args ...any) *Error {
	return &Error{Kind: kind, Object: object, Text: outside.Text(fmt.Sprintf(format, args...))}
}

// isKind reports whether an error has a kind.
func isKind(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// BatchError names all images of a request that are wrong. Nothing of the request was published.
type BatchError struct{ Lines []Wanted }

// wrongLines returns the error for images that are wrong; nil: none is.
func wrongLines(wrong []Wanted) error {
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		if wrong[0].Line == 0 {
			return wrong[0].Err
		}
	}
	return &BatchError{Lines: wrong}
}

// IsInput reports whether all images are wrong as they are written.
func (e *BatchError) IsInput() bool {
	return !slices.ContainsFunc(e.Lines, func(w Wanted) bool { return !isKind(w.Err, KindInput) })
}

func (e *BatchError) Error() string {
	text := fmt.Sprintf("nothing was published: %d images are wrong", len(e.Lines))
	if len(e.Lines) == 1 {
		text = "nothing was published: one image is wrong"
	}
	for _, w := range e.Lines {
		text += "\n  "
		if w.Line > 0 {
			text += fmt.Sprintf("line %d: ", w.Line)
		}
		text += w.Err.Error()
	}
	return text
}

// near returns the candidates that are most like a word, at most two. They differ in at most a third of it, and one
// character more.
func near(word string, candidates []string) []string {
	best, found := len(word)/3+2, []string(nil)
	for _, c := range candidates {
		switch d := distance(word, c, best); {
		case d < best:
			best, found = d, []string{c}
		case d == best && len(found) == 1:
			found = append(found, c)
		}
	}
	return found
}

// distance is the number of characters to insert, remove or replace; over limit, any number
// above it.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
