// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
)

const (
	// maxListed bounds the lists among the properties, as the grain is bounded.
	maxListed = 64
	// maxText bounds a text, in bytes; maxWord one that is a name.
	maxText = 4 << 10
	maxWord = 512
)

// record is one element of a list on the bus: a{sv}.
type record = map[string]dbus.Variant

// properties are a status as the object has it.
func (b *Bus) properties(s status.Status) map[string]dbus.Variant {
	all := properties(s)
	all["Revision"] = dbus.MakeVariant(b.revision.Load())
	return all
}

// properties are the tagged fields of a status, and what is made of several of its fields.
func properties(s status.Status) map[string]dbus.Variant {
	out := encode(s)
	maps.Copy(out, encode(made{
		UpdatesAvailable: len(s.Updates) > 0, Images: imagesOf(s), Holds: holdsOf(s), Withdrawn: withdrawnOf(s),
	}))
	cut := []string{}
	for name, value := range out {
		if list, is := value.Value().([]record); is && len(list) > maxListed {
			out[name], cut = dbus.MakeVariant(list[:maxListed]), append(cut, name)
		}
	}
	slices.Sort(cut)
	out["Cut"] = dbus.MakeVariant(cut)
	return out
}

// made are the properties that are no field of a status.
type made struct {
	UpdatesAvailable bool        `dbus:"UpdatesAvailable"`
	Images           []image     `dbus:"Images"`
	Holds            []held      `dbus:"Holds"`
	Withdrawn        []withdrawn `dbus:"Withdrawn"`
}

type image struct {
	status.ImageStatus `dbus:",inline"`

	Runs bool `dbus:"runs"`
}

func imagesOf(s status.Status) []image {
	var out []image
	for _, i := range s.Images[:min(len(s.Images), maxListed+1)] {
		out = append(out, image{i, i.Running != nil && i.Down == nil})
	}
	return out
}

// held is a hold of a pod manifest, or of an image that is followed without one.
type held struct {
	status.Hold `dbus:",inline"`

	PodManifest string `dbus:"podManifest"`
	Image       string `dbus:"image"`
}

func holdsOf(s status.Status) []held {
	var out []held
	add := func(podManifest, image string, all []status.Hold) {
		for _, h := range all[:min(len(all), maxListed+1-len(out))] {
			out = append(out, held{h, podManifest, image})
		}
	}
	for _, p := range s.PodManifests {
		add(p.PodManifest, "", p.Holds)
	}
	for _, i := range s.Images {
		if i.PodManifest == "" {
			add("", i.Image, i.Holds)
		}
	}
	return out
}

// withdrawn is a container that runs a release which the catalog has withdrawn.
type withdrawn struct {
	PodManifest string `dbus:"podManifest"`
	Container   string `dbus:"container"`
	Image       string `dbus:"image"`
	Tag         string `dbus:"tag"`
	Digest      string `dbus:"digest"`
	Reason      string `dbus:"reason"`
	To          string `dbus:"to"`
}

func withdrawnOf(s status.Status) []withdrawn {
	var out []withdrawn
	for _, i := range s.Images {
		if i.Withdrawn != nil && i.Running != nil {
			out = append(out, withdrawn{
				i.PodManifest, i.Container, i.Image, i.Running.Tag, i.Running.Digest.String(), i.Withdrawn.Reason, i.Withdrawn.To,
			})
		}
	}
	return out
}
