// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// OwnHostStatus is the node's own host, which answers what tags name.
type OwnHostStatus struct {
	// Registries are those whose hosts.toml names it, sorted.
	Registries []OwnHostRegistry `json:"registries"`
	// Answers counts what it answered since the boot, or since its journal began anew; null: that is
	// not known.
	Answers *OwnHostAnswers `json:"answers"`
	// Lost are the registries for which it was enabled and does not stand where it was.
	Lost []OwnHostLost `json:"lost,omitempty"`
	// WantedError is why it is not known for which registries it was enabled; absent: it is.
	WantedError string `json:"wantedError,omitempty"`
	Error       string `json:"error"` // why its table could not be saved; "": it is up to date
	Down        string `json:"down"`  // why it did not answer the agent; "": it did
}

// OwnHostRegistry is a registry whose hosts.toml names the own host.
type OwnHostRegistry struct {
	Registry   string              `json:"registry" label:"registry"`
	Position   string              `json:"position"`   // fallback or gate
	Tags       []OwnHostTag        `json:"tags"`       // that it answers
	Unanswered []OwnHostUnanswered `json:"unanswered"` // followed tags that it does not answer, and why
	// LastServed is when kubelet got an image from it last; null: not since the boot.
	LastServed *time.Time `json:"lastServed" metric:"own_host_last_served_timestamp_seconds" help:"When kubelet got an image from the node's own host last; not there before."`
	// AwaySince is when the registry answered last, while it does not; null: it answers.
	AwaySince *time.Time `json:"awaySince"`
}

// OwnHostLost is a registry for which the own host was enabled, and which does not have it there any more.
type OwnHostLost struct {
	Registry string `json:"registry"`
	Wanted   string `json:"wanted"`   // fallback or gate
	Position string `json:"position"` // where it stands; "": containerd does not ask it
	Reason   string `json:"reason"`
}

// OwnHostTag is a tag that the own host answers.
type OwnHostTag struct {
	Image      string        `json:"image"` // repository
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
	LastServed *time.Time    `json:"lastServed"`
}

// OwnHostUnanswered is a followed tag that the own host does not answer.
type OwnHostUnanswered struct {
	Image  string `json:"image"`
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// OwnHostAnswers counts the requests to the own host.
type OwnHostAnswers struct {
	Served  int `json:"served"`
	Unknown int `json:"unknown"` // the table did not have the tag: containerd asked the next host
	Refused int `json:"refused"` // no request of containerd's
}
