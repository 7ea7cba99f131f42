// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The names of cosign's specifications.
const (
	simpleLayer     = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleKey       = "dev.cosignproject.cosign/signature"
	simpleKind      = "cosign container image signature"
	simpleReferrer  = "application/vnd.dev.cosign.artifact.sig.v1+json"
	bundleLayer     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	bundlePredicate = "dev.sigstore.bundle.predicateType"
	signedPredicate = "https://sigstore.dev/cosign/sign/v1"
	inTotoStatement = "https://in-toto.io/Statement/v1"
	inTotoEnvelope  = "application/vnd.in-toto+json"
)

// simpleParts are the parts of a layer of simple signing.
type simpleParts struct {
	identity, kind  string
	of              digest.Digest
	another         bool                     // use another algorithm
	before, after   func(text string) string // change the payload before and after it is signed
	encode          func(sig []byte) string
	mediaType       string
	annotations     map[string]string
	lost, unsigned  bool
	sizeIsAnother   int64
	signatureOfByte bool // alter the signature
}

// anotherDigest is the digest of no image in this test.
var anotherDigest = digest.FromString("another image")

func replaced(from, to string) func(string) string {
	return func(text string) string { return strings.Replace(text, from, to, 1) }
}

func followed(by string) func(string) string { return func(text string) string { return text + by } }

// simpleOdd are the oddities of a layer of simple signing.
var simpleOdd = map[string]func(*simpleParts){
	plain:                          func(*simpleParts) {},
	"with another algorithm":       func(p *simpleParts) { p.another = true },
	"another digest":               func(p *simpleParts) { p.of = anotherDigest },
	"no digest":                    func(p *simpleParts) { p.of = "" },
	"the digest in upper case":     func(p *simpleParts) { p.of = digest.Digest(strings.ToUpper(p.of.String())) },
	"another identity":             func(p *simpleParts) { p.identity = cosignHost + "/another" },
	"no identity":                  func(p *simpleParts) { p.identity = "" },
	"identity with a tag":          func(p *simpleParts) { p.identity += ":1" },
	"identity with another digest": func(p *simpleParts) { p.identity += "@" + anotherDigest.String() },
	"another kind":                 func(p *simpleParts) { p.kind = "atomic container signature" },
	"no kind":                      func(p *simpleParts) { p.before = replaced(`,"type":"`+simpleKind+`"`, "") },
	"a new critical key":           func(p *simpleParts) { p.before = replaced(`"identity"`, `"new":1,"identity"`) },
	"a new key":                    func(p *simpleParts) { p.before = replaced(`{"critical"`, `{"new":1,"critical"`) },
	"a key twice": func(p *simpleParts) {
		p.before = replaced(`"image":{`, `"image":{"docker-manifest-digest":"`+anotherDigest.String()+`",`)
	},
	"a key in another case": func(p *simpleParts) { p.before = replaced(`"critical"`, `"Critical"`) },
	"optional keys":         func(p *simpleParts) { p.before = replaced("null", `{"creator":"x","timestamp":1}`) },
	"optional is no object": func(p *simpleParts) { p.before = replaced("null", `"x"`) },
	"more behind it":        func(p *simpleParts) { p.before = followed("{}") },
	"space around it":       func(p *simpleParts) { p.before = func(text string) string { return "\n" + text + "\n" } },
	"no JSON":               func(p *simpleParts) { p.before = func(string) string { return "signed" } },
	"empty":                 func(p *simpleParts) { p.before = func(string) string { return "" } },
	"null":                  func(p *simpleParts) { p.before = func(string) string { return "null" } },
	"altered behind it":     func(p *simpleParts) { p.after = followed(" ") },
	"altered": func(p *simpleParts) {
		of := p.of.String()
		p.of, p.after = anotherDigest, replaced(anotherDigest.String(), of)
	},
	"an altered signature":       func(p *simpleParts) { p.signatureOfByte = true },
	"no annotation":              func(p *simpleParts) { p.unsigned = true },
	"an empty annotation":        func(p *simpleParts) { p.encode = func([]byte) string { return "" } },
	"a garbled annotation":       func(p *simpleParts) { p.encode = func([]byte) string { return "not base64!" } },
	"base64 of URLs":             func(p *simpleParts) { p.encode = base64.URLEncoding.EncodeToString },
	"base64 without its padding": func(p *simpleParts) { p.encode = base64.RawStdEncoding.EncodeToString },
	"base64 as of base64(1)": func(p *simpleParts) {
		p.encode = func(sig []byte) string {
			text := base64.StdEncoding.EncodeToString(sig)
			return text[:64] + "\n" + text[64:] + "\n"
		}
	},
	"base64 twice": func(p *simpleParts) {
		p.encode = func(sig []byte) string { return strings.Repeat(base64.StdEncoding.EncodeToString(sig), 2) }
	},
	"hex":                      func(p *simpleParts) { p.encode = func(sig []byte) string { return fmt.Sprintf("%x", sig) } },
	"another media type":       func(p *simpleParts) { p.mediaType = "application/octet-stream" },
	"the media type of layers": func(p *simpleParts) { p.mediaType = ocispec.MediaTypeImageLayer },
	"no payload":               func(p *simpleParts) { p.lost = true },
	"another size":             func(p *simpleParts) { p.sizeIsAnother = 1 },
	"a certificate":            func(p *simpleParts) { p.annotations["dev.sigstore.cosign/certificate"] = "garbled" },
	"a chain":                  func(p *simpleParts) { p.annotations["dev.sigstore.cosign/chain"] = "garbled" },
	"a garbled log entry":      func(p *simpleParts) { p.annotations["dev.sigstore.cosign/bundle"] = "garbled" },
	"a log entry":              func(p *simpleParts) { p.annotations["dev.sigstore.cosign/bundle"] = "{}" },
	"a garbled timestamp":      func(p *simpleParts) { p.annotations["dev.sigstore.cosign/rfc3161timestamp"] = "garbled" },
	"other annotations":        func(p *simpleParts) { p.annotations["org.example"] = "x" },
}

// simple returns a layer of simple signing.
func (c cosignImages) simple(t *testing.T, r *cosignRegistry, s cosignSigned) ocispec.Descriptor {
	t.Helper()
	same := func(text string) string { return text }
	p := simpleParts{
		identity: cosignHost + "/" + r.Repository, kind: simpleKind, of: s.of, before: same, after: same,
		encode: base64.StdEncoding.EncodeToString, mediaType: simpleLayer, annotations: map[string]string{},
	}
	simpleOdd[s.odd](&p)
	payload := p.before(fmt.Sprintf(
		`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`,
		p.identity, p.of, p.kind))
	sig := c.keys.sign(t, s.key, []byte(payload), p.another)
	if p.signatureOfByte {
		sig[len(sig)/2] ^= 1
	}
	layer := r.blob(p.mediaType, []byte(p.after(payload)))
	if p.lost {
		delete(r.Blobs, layer.Digest)
	}
	layer.Size += p.sizeIsAnother
	layer.Annotations = p.annotations
	if !p.unsigned {
		layer.Annotations[simpleKey] = p.encode(sig)
	}
	return layer
}

// bundleParts are the parts of a bundle.
type bundleParts struct {
	mediaType, material           string
	statement, predicate, subject string
	payloadType                   string
	before, after, bundle         func(text string) string // change payload (unsigned, signed) and bundle
	encode                        func(sig []byte) string
	another, signatureOfByte      bool
	signatures                    int
	digest                        string // the digest that accompanies a message signature
	message                       func(manifest []byte) []byte
}

// bundlesOdd are the oddities of a bundle with any content.
var bundlesOdd = map[string]func(*bundleParts){
	plain:                        func(*bundleParts) {},
	"with another algorithm":     func(p *bundleParts) { p.another = true },
	"version 0.1":                func(p *bundleParts) { p.mediaType = "application/vnd.dev.sigstore.bundle+json;version=0.1" },
	"version 0.2":                func(p *bundleParts) { p.mediaType = "application/vnd.dev.sigstore.bundle+json;version=0.2" },
	"version 0.3 as a parameter": func(p *bundleParts) { p.mediaType = "application/vnd.dev.sigstore.bundle+json;version=0.3" },
	"version 0.4":                func(p *bundleParts) { p.mediaType = "application/vnd.dev.sigstore.bundle.v0.4+json" },
	"version 0.3.1":              func(p *bundleParts) { p.mediaType = "application/vnd.dev.sigstore.bundle.v0.3.1+json" },
	"no version":                 func(p *bundleParts) { p.mediaType = "" },
	"no material":                func(p *bundleParts) { p.bundle = replaced(`"verificationMaterial":{"publicKey":{"hint":"x"}},`, "") },
	"empty material":             func(p *bundleParts) { p.material = "{}" },
	"a certificate":              func(p *bundleParts) { p.material = `{"certificate":{"rawBytes":"eA=="}}` },
	"a chain":                    func(p *bundleParts) { p.material = `{"x509CertificateChain":{"certificates":[]}}` },
	"a garbled log entry":        func(p *bundleParts) { p.material = `{"publicKey":{"hint":"x"},"tlogEntries":[{}]}` },
	"a garbled timestamp": func(p *bundleParts) {
		p.material = `{"publicKey":{"hint":"x"},"timestampVerificationData":{"rfc3161Timestamps":[{"signedTimestamp":"eA=="}]}}`
	},
	"a new key":                  func(p *bundleParts) { p.bundle = replaced(`{"mediaType"`, `{"new":1,"mediaType"`) },
	"a key twice":                func(p *bundleParts) { p.bundle = replaced(`{"mediaType"`, `{"mediaType":"x","mediaType"`) },
	"a key in another case":      func(p *bundleParts) { p.bundle = replaced(`"mediaType"`, `"MediaType"`) },
	"names of protobuf":          func(p *bundleParts) { p.bundle = replaced(`"mediaType"`, `"media_type"`) },
	"more behind it":             func(p *bundleParts) { p.bundle = followed("{}") },
	"space around it":            func(p *bundleParts) { p.bundle = func(text string) string { return "\n" + text + "\n" } },
	"no JSON":                    func(p *bundleParts) { p.bundle = func(string) string { return "signed" } },
	"no content":                 func(p *bundleParts) { p.bundle = func(string) string { return `{"mediaType":"` + bundleLayer + `"}` } },
	"an altered signature":       func(p *bundleParts) { p.signatureOfByte = true },
	"an empty signature":         func(p *bundleParts) { p.encode = func([]byte) string { return "" } },
	"a garbled signature":        func(p *bundleParts) { p.encode = func([]byte) string { return "not base64!" } },
	"base64 of URLs":             func(p *bundleParts) { p.encode = base64.URLEncoding.EncodeToString },
	"base64 without its padding": func(p *bundleParts) { p.encode = base64.RawStdEncoding.EncodeToString },
}

// bundleOdd are the oddities of a bundle with a statement.
var bundleOdd = with(bundlesOdd, map[string]func(*bundleParts){
	"another predicate":       func(p *bundleParts) { p.predicate = "https://cosign.sigstore.dev/attestation/v1" },
	"no predicate":            func(p *bundleParts) { p.predicate = "" },
	"statement 0.1":           func(p *bundleParts) { p.statement = "https://in-toto.io/Statement/v0.1" },
	"no statement":            func(p *bundleParts) { p.statement = "" },
	"another payload type":    func(p *bundleParts) { p.payloadType = "text/plain" },
	"no signature":            func(p *bundleParts) { p.signatures = 0 },
	"two signatures":          func(p *bundleParts) { p.signatures = 2 },
	"another digest":          func(p *bundleParts) { p.subject = subjectOf(anotherDigest) },
	"two subjects":            func(p *bundleParts) { p.subject = subjectOf(anotherDigest) + "," + p.subject },
	"no subject":              func(p *bundleParts) { p.subject = "" },
	"a subject of null":       func(p *bundleParts) { p.subject += ",null" },
	"a subject first of null": func(p *bundleParts) { p.subject = "null," + p.subject },
	"a subject of SHA-512":    func(p *bundleParts) { p.subject = strings.Replace(p.subject, "sha256", "sha512", 1) },
	"a digest more": func(p *bundleParts) {
		p.subject = strings.Replace(p.subject, `{"sha256"`, `{"sha512":"00","sha256"`, 1)
	},
	"a digest that is no hex": func(p *bundleParts) {
		p.subject = strings.Replace(p.subject, `{"sha256"`, `{"sha512":"x","sha256"`, 1)
	},
	"the digest in upper case": func(p *bundleParts) {
		at := strings.LastIndex(p.subject, `":"`)
		p.subject = p.subject[:at] + strings.ToUpper(p.subject[at:])
	},
	"a subject's name":         func(p *bundleParts) { p.subject = strings.Replace(p.subject, "{", `{"name":"`+cosignHost+`/app",`, 1) },
	"another subject's name":   func(p *bundleParts) { p.subject = strings.Replace(p.subject, "{", `{"name":"another",`, 1) },
	"a subject's annotations":  func(p *bundleParts) { p.subject = strings.Replace(p.subject, "{", `{"annotations":{"a":"b"},`, 1) },
	"a new key of the payload": func(p *bundleParts) { p.before = replaced(`{"_type"`, `{"new":1,"_type"`) },
	"a key of the payload twice": func(p *bundleParts) {
		p.before = replaced(`{"_type"`, `{"subject":[`+subjectOf(anotherDigest)+`],"_type"`)
	},
	"a payload without JSON":  func(p *bundleParts) { p.before = func(string) string { return "signed" } },
	"more behind the payload": func(p *bundleParts) { p.before = followed("{}") },
	"altered behind it":       func(p *bundleParts) { p.after = followed(" ") },
	"altered": func(p *bundleParts) {
		subject := p.subject
		p.subject, p.after = subjectOf(anotherDigest), replaced(subjectOf(anotherDigest), subject)
	},
	"altered payload type": func(p *bundleParts) {
		p.payloadType, p.bundle = "text/plain", replaced(`"text/plain"`, `"`+inTotoEnvelope+`"`)
	},
	"a message beside it": func(p *bundleParts) {
		p.bundle = replaced(`"dsseEnvelope"`, `"messageSignature":{"signature":"eA=="},"dsseEnvelope"`)
	},
	"an id of the key": func(p *bundleParts) { p.bundle = replaced(`{"sig":`, `{"keyid":"x","sig":`) },
})

// messageOdd are the oddities of a bundle with a signature of the manifest.
var messageOdd = with(bundlesOdd, map[string]func(*bundleParts){
	"another digest":  func(p *bundleParts) { p.digest = base64.StdEncoding.EncodeToString(make([]byte, 32)) },
	"no digest":       func(p *bundleParts) { p.digest = "" },
	"another message": func(p *bundleParts) { p.message = func([]byte) []byte { return []byte("another") } },
	"altered":         func(p *bundleParts) { p.message = func(of []byte) []byte { return append(slices.Clip(of), ' ') } },
	"of the digest": func(p *bundleParts) {
		p.message = func(of []byte) []byte { return []byte(digest.FromBytes(of).String()) }
	},
})

func with(all, more map[string]func(*bundleParts)) map[string]func(*bundleParts) {
	both := maps.Clone(all)
	maps.Copy(both, more)
	return both
}

// subjectOf returns the subject of a statement about a digest.
func subjectOf(d digest.Digest) string { return fmt.Sprintf(`{"digest":{"sha256":%q}}`, d.Encoded()) }

// bundle returns a bundle with a statement, or with a signature of the manifest.
func (c cosignImages) bundle(t *testing.T, r *cosignRegistry, s cosignSigned) string {
	t.Helper()
	same := func(text string) string { return text }
	sum, manifest := s.of.Encoded(), r.Manifests[s.of].Body
	p := bundleParts{
		mediaType: bundleLayer, material: `{"publicKey":{"hint":"x"}}`, statement: inTotoStatement, predicate: signedPredicate,
		subject: subjectOf(s.of), payloadType: inTotoEnvelope, before: same, after: same, bundle: same, signatures: 1,
		encode: base64.StdEncoding.EncodeToString, digest: base64OfHex(sum), message: func(of []byte) []byte { return of },
	}
	if s.way == "message" {
		messageOdd[s.odd](&p)
		return p.bundle(fmt.Sprintf(`{"mediaType":%q,"verificationMaterial":%s,"messageSignature":{%s"signature":"%s"}}`,
			p.mediaType, p.material, p.messageDigest(), p.encode(c.signed(t, s, p, p.message(manifest)))))
	}
	bundleOdd[s.odd](&p)
	payload := p.before(fmt.Sprintf(`{"_type":%q,"subject":[%s],"predicateType":%q,"predicate":{}}`,
		p.statement, p.subject, p.predicate))
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(p.payloadType), p.payloadType, len(payload), payload)
	sig := fmt.Sprintf(`{"sig":"%s"}`, p.encode(c.signed(t, s, p, []byte(pae))))
	signatures := strings.TrimSuffix(strings.Repeat(sig+",", p.signatures), ",")
	return p.bundle(fmt.Sprintf(
		`{"mediaType":%q,"verificationMaterial":%s,"dsseEnvelope":{"payload":%q,"payloadType":%q,"signatures":[%s]}}`,
		p.mediaType, p.material, base64.StdEncoding.EncodeToString([]byte(p.after(payload))), p.payloadType, signatures))
}

// signed returns a signature of a message.
func (c cosignImages) signed(t *testing.T, s cosignSigned, p bundleParts, message []byte) []byte {
	t.Helper()
	sig := c.keys.sign(t, s.key, message, p.another)
	if p.signatureOfByte {
		sig[len(sig)/2] ^= 1
	}
	return sig
}

func (p bundleParts) messageDigest() string {
	if p.digest == "" {
		return ""
	}
	return fmt.Sprintf(`"messageDigest":{"algorithm":"SHA2_256","digest":%q},`, p.digest)
}

func base64OfHex(sum string) string {
	var data []byte
	_, _ = fmt.Sscanf(sum, "%x", &data)
	return base64.StdEncoding.EncodeToString(data)
}
