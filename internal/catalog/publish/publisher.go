// SPDX-License-Identifier: Apache-2.0

package publish

import (
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
	// Name is the repository that nodes know the catalog as; empty: Repository.
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

// keysOf returns the keys of a channel.
func (p *Publisher) keysOf(channel string) (keys, error) {
	k, err := newKeys(p.trust.Require, p.trust.Accept, append(slices.Clone(p.trust.own(channel)), p.signing()...)...)
	if err != nil {
		return k, &Error{Kind: KindInput, Object: channel, Text: "its keys", Err: err}
	}
	return k, nil
}

// Name is the repository that nodes know the catalog as.
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
