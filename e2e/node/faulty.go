// SPDX-License-Identifier: Apache-2.0

package node

import (
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Fault is a defect of a release.
type Fault string

// The faults.
const (
	Crash         Fault = "crash"         // exits at once with code 1
	Unready       Fault = "unready"       // answers 503 at /ready, and is good otherwise
	NoEntry       Fault = "noentry"       // its entry point is not in the image
	OtherPlatform Fault = "otherplatform" // an index without this machine's platform
)

// PublishFaulty publishes a release with a fault.
func (r *Registry) PublishFaulty(repository, long string, image Image, fault Fault) string {
	r.node.tb.Helper()
	if image.Answer == "" {
		image.Answer = long
	}
	if fault == OtherPlatform {
		image.Platforms = []string{"linux/ppc64le", "linux/s390x"}
		if runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64le" {
			image.Platforms = []string{"linux/amd64", "linux/arm64"}
		}
		return r.Push(repository, image, r.tagsOf(repository, long)...)
	}
	faulty, digest, err := image.faulty(r.answer, fault)
	if err != nil {
		r.node.tb.Fatalf("node: publish %s:%s: %v", repository, long, err)
	}
	r.PushMade(repository, faulty, r.tagsOf(repository, long)...)
	return digest
}

func (i Image) faulty(answer string, fault Fault) (v1.Image, string, error) {
	layers, err := i.layers(answer)
	if err != nil {
		return nil, "", err
	}
	image, err := i.forPlatform(layers, "linux/"+runtime.GOARCH)
	if err != nil {
		return nil, "", err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, "", err
	}
	config := file.DeepCopy().Config
	if fault == NoEntry {
		config.Entrypoint, config.Cmd = []string{"/missing"}, nil
	} else {
		config.Env = append(config.Env, "FAULT="+string(fault))
	}
	if image, err = mutate.Config(image, config); err != nil {
		return nil, "", err
	}
	digest, err := image.Digest()
	return image, digest.String(), err
}
