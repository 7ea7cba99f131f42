// SPDX-License-Identifier: Apache-2.0

package manifests

import "cmp"

// Why an image, or its pull policy, is not edited. These words are part of the machine interface.
const (
	ReasonDigest        = "digest-pinned"       // has a digest: its author wants exactly this image
	ReasonEmpty         = "empty"               // no image field, or one without a value
	ReasonNotString     = "not-a-string"        // a number, list, mapping or private tag
	ReasonNotReference  = "not-a-reference"     // does not match the grammar of image references
	ReasonBlockScalar   = "block-scalar"        // image: | or image: >
	ReasonSeveralLines  = "several-lines"       // a value that spans lines
	ReasonShared        = "shared-anchor"       // an anchor shares it with a place that differs or is no image
	ReasonArgument      = "argument"            // in command or args
	ReasonEnvironment   = "environment"         // in env
	ReasonLaterDocument = "later-document"      // after the first document, the only one that kubelet runs
	ReasonNoTag         = "no-known-tag"        // no tag is known for the repository; the written one stays
	ReasonPolicyNever   = "pull-policy-never"   // an explicit Never: the image is provided by other means
	ReasonPolicyShared  = "pull-policy-shared"  // an anchor or merge key shares it, or its place
	ReasonPolicyUnknown = "pull-policy-unknown" // a pull policy that kubelet does not know
)

// ReasonTexts explains each reason to a person.
func ReasonTexts() map[string]string {
	return map[string]string{
		ReasonDigest:        "it names a digest, so kubelet starts exactly this image; remove the digest to follow the tag",
		ReasonEmpty:         "no image is written",
		ReasonNotString:     "the image is not a string",
		ReasonNotReference:  "it is not an image reference",
		ReasonBlockScalar:   "it is a block (| or >); write it on one line",
		ReasonSeveralLines:  "it spans several lines; write it on one line",
		ReasonShared:        "a YAML anchor shares it with a place that must not change",
		ReasonArgument:      "it is an argument of a program, and the agent does not edit arguments",
		ReasonEnvironment:   "it is in an environment variable, and the agent does not edit variables",
		ReasonLaterDocument: "kubelet runs only the first document of a file",
		ReasonNoTag:         "no tag is known for this repository",
		ReasonPolicyNever:   "the pull policy stays Never: another program provides the image",
		ReasonPolicyShared:  "the pull policy stays: a YAML anchor or merge key shares it with another container",
		ReasonPolicyUnknown: "the pull policy stays: kubelet does not know it",
	}
}

// ReasonText explains a reason to a person.
func ReasonText(reason string) string { return cmp.Or(ReasonTexts()[reason], reason) }
