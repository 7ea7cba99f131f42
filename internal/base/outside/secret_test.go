// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// unparsed is a URL that net/url quotes in its error.
var unparsed = "https://user:hunter2" + "%zz@host"

// shapes are the places where parsers, servers and files quote a secret; %s is the secret.
var shapes = []string{
	"https://user:%s@registry.example.com/v2/",
	"https://%s@registry.example.com",
	"https://user@registry.example.com:x%s/v2/",
	`msg="x" error="parse \"https://u:a/b@h\": invalid port \":%s\" after host"`,
	"https://user:a/%s@registry.example.com:5000/v2/",
	"https://user:pa %s@registry.example.com/v2/",
	"https://user:%s%%zz@registry.example.com/v2/",
	`parse "https://user:%s%%zz@registry.example.com": invalid URL escape "%%zz"`,
	`hosts.toml: parse "https://user:12 %s@host": net/url: invalid userinfo`,
	`Get "https://user:%s@host/v2/": dial tcp: connection refused`,
	"proxyconnect tcp: http://user:%s@proxy.example.com:3128",
	"HTTP_PROXY=user:%s@proxy:3128",
	"user:%s@proxy.example.com:3128",
	"https://cdn.example.com/blob?X-Amz-Signature=%s&n=3",
	"https://cdn.example.com/blob?a=b&token=%s",
	`{"error": "https://cdn.example.com/blob?a=b\u0026sig=%s"}`,
	"https://cdn.example.com/blob?a=b&amp;X-Amz-Signature=%s",
	"https://cdn.example.com/blob?%s",
	"https://h/login?to=1&url=https%%3A%%2F%%2Fuser%%3A%s%%40host%%2Fv2",
	"/redirect/https%%3A%%2F%%2Fuser%%3A%s%%40host",
	"/redirect/https%%3A%%2F%%2Fhost%%2F%%3Fa%%3Db%%26sig%%3D%s",
	"https://user%%3A%s@registry.example.com",
	`https:\/\/user:%s@registry.example.com\/v2\/`,
	`parse ":%s@registry.example.com": missing protocol scheme`,
	"PRIVATE-TOKEN: %s",
	"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=%s",
	"DefaultEndpointsProtocol=https;AccountKey=%s",
	"SharedAccessSignature=%s",
	"sig=%s",
	`token "%s" is not valid`,
	"login --password %s",
	"NTLM %s",
	"Location: https://cdn.example.com/blob#access_token=%s",
	`Put "https://h/v2/x/blobs/uploads/1?_state=%s": EOF`,
	"Authorization: Basic %s",
	"Authorization: %s",
	`"Authorization" = ["Bearer %s"]`,
	`header "Authorization: Bearer %s": invalid name`,
	"Proxy-Authorization: Basic %s",
	"Bearer %s",
	"basic %s",
	"Cookie: session=%s; path=/",
	"X-Registry-Token: %s",
	`{"auths":{"r.example.com":{"auth":"%s"}}}`,
	`{\"identitytoken\":\"%s\"}`,
	`{"Username":"u","Secret":"%s"}`,
	"password: %s",
	"password: '%s with spaces'",
	`password = "%s with spaces"`,
	"password=%s",
	"client_secret=%s&x=1",
	"aws_secret_access_key = %s",
	"-----BEGIN PRIVATE KEY-----\nMII%s\n-----END PRIVATE KEY-----",
	`open /etc/containerd/certs.d/h/-----BEGIN EC PRIVATE KEY-----\nMII%s`,
	"-----BEGIN CERTIFICATE----- %s -----END CERTIFICATE-----",
	`config.yaml:3: apply.lock.url: "https://user:%s@lock.example.com": want no password`,
	"https://h/p#%s",
	`Get "https://h/p#%s": EOF`,
	"https://h/app/#/callback/%s",
	"login --password=%s",
	"--pass=%s", "--registry-token %s", "--api-key=%s", "--client-secret '%s'",
	"podman login -u user -p %s r.example.com", "docker login r.example.com -p=%s", "mysql -uroot -p%s",
	"sshpass -p %s ssh host",
	`["docker","login","--password","%s"]`,
	"curl -u user:%s https://h", "skopeo copy --src-creds user:%s docker://a/b", "--dest-creds=user:%s",
	"curl --proxy-user user:%s https://h",
	"machine h login u password %s",
	"auth: %s", "{auth: %s}", "auths: {r.example.com: {auth: %s}}", "registry_auth: %s", "auth: '%s'",
	"http.secret: %s", "pwd: %s",
	`first record does not look like it: "https://user:%s`,
}

// A secret of any characters that its place allows is in none of the results.
func TestNoSecretPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9!$*._~-]{8,40}`).Filter(isNoWord).Draw(t, "secret")
		shape := rapid.SampledFrom(shapes).Draw(t, "shape")
		before := rapid.SampledFrom([]string{"", "hosts.toml: line 3: ", "registry.example.com: velum:4.0: ", "x=\"y\" "}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", ": 401 Unauthorized", "\n", `"`, " (line 3)"}).Draw(t, "after")
		text := before + fmt.Sprintf(shape, secret) + after
		for _, got := range []string{
			outside.Mask(text), outside.Text(text), outside.Error(errors.New(text)).Error(),
			outside.Text(strings.Repeat("a ", 130) + text), outside.Error(errors.New(strings.Repeat("a ", 400) + text)).Error(),
		} {
			assert.NotContains(t, got, secret, text)
			assert.NotContains(t, got, secret[:len(secret)*3/4], text)
			assert.NotContains(t, got, secret[len(secret)/4:], text)
		}
		once := outside.Mask(text)
		assert.Equal(t, once, outside.Mask(once), "a second time changes nothing")
	})
}

// isNoWord reports whether a text is not a word that people would write.
func isNoWord(s string) bool { return strings.ContainsAny(s, "0123456789") || len(s) >= 9 }

// A short value is a secret as well if its key is not a word in sentences.
func TestShortSecretsAreMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"auth: dTpw": "auth: ***",
		"-----BEGIN KEY-----\nab cd\n-----END KEY-----": "***",
		"auth: supersecret":                             "auth: ***",
		"{auth: abc, email: a}":                         "{auth: ***, email: a}",
		"auth: abc # mine":                              "auth: *** # mine",
		"secret: hunter":                                "secret: ***",
		"token: hunter2x":                               "token: ***",
		"token: \"two words\"":                          "token: ***",
		"docker login -u u -p pw host":                  "docker login -u u -p *** host",
		"https://h/p#x1":                                "https://h/p#***",
		"SetCredential=a:b":                             "SetCredential=***",
		"velum:tag@digest.example.com":                  "velum:***@digest.example.com",
		"docker://REPOSITORY:TAGx":                      "docker://REPOSITORY:***",
		"a\nauth: one\nauth: two\n":                     "a\nauth: ***\nauth: ***\n",
		"\"auth\": dTpw, \"email\": \"a@b\"":            "\"auth\": ***, \"email\": \"a@b\"",
	} {
		assert.Equal(t, want, outside.Mask(text))
	}
}

// Tokens without a name are detected by their form.
func TestTokensAreKnownByTheirForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 32, 64).Draw(t, "bytes")
		jwt := "eyJ" + base64.RawURLEncoding.EncodeToString(bytes)
		assert.NotContains(t, outside.Mask("answer "+jwt+"."+jwt+" is not valid"), jwt)
	})
	for _, secret := range []string{
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "glpat-abcdefghijklmnopqrst", "abcdef.0123456789abcdef",
		"AKIAIOSFODNN7EXAMPLE", "dXNlcjpzM2NyM3Q6cGFzc3dvcmQ=", "aB3dE5fG7hI9jK1lM3nO5pQ7", "dckr_pat_aaaaBBBBcccc",
	} {
		assert.NotContains(t, outside.Mask(`header name "`+secret+`" is not valid`), secret)
	}
}

// Useful parts stay: hosts, paths, digests, references, times, causes.
func TestTextsForPeopleStay(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a1b2c3d", 8)
	for _, text := range []string{
		"registry.suse.com: sles12/velum:4.0: 503 Service Unavailable",
		"https://registry.suse.com/v2/caasp/v4/velum/manifests/" + digest + ": 404 Not Found",
		"registry.suse.com/caasp/v4/velum:4.0.0-rev1@" + digest,
		"https://registry.example.com:5000/v2/a/b@" + digest,
		"velum:4.0@sha25…", "velum@sha256:0a…",
		"https://[2001:db8::1]:5000/v2/", "https://host:443: dial tcp 10.0.0.1:443: connection refused",
		"want the URL of a lock server, with an optional path: https://lock.example.com",
		`Get "https://r.example.com/v2/x/tags/list?n=1000&last=4.0.0-rev1": EOF`,
		`Bearer realm="https://auth.example.com/token",service="registry",scope="repository:a/b:pull"`,
		"basic authentication failed", "token: 401 Unauthorized", "registry: token server auth.example.com: 403",
		"no lines username= and password=", "auth is not the base64 of user:password",
		"lock server lock.example.com: 409: all slots are taken (holder 1b4e28ba2fa11d2a883f0016d3cca427 since 2026-05-01T12:00:00Z)",
		"/var/lib/image-update-agent/record.json: permission denied", "etcd.yaml: lock: quorum",
		"RELEASE.2024-01-16T16-07-38Z", "4.0.0-rev1-build1.3", "v1.34.2", "20240115T120000Z-abcdef",
		"op-prod-20261122T095500Z-9f2c41aa03b7", "op-stage-20261122T120000Z-0a1b2c3d4e5f: not folded",
		"/tmp/TestClientCertificateIsReadAnew123456789/001/cert.pem: no such file", "coredns-5d78c9869d-x7k2p",
		"image_update_agent_lock_since_timestamp_seconds", "org.opensuse.ImageUpdateAgent1.Failed",
		"x509: certificate signed by unknown authority (ECDSA P-256)", "PEM of \"CERTIFICATE\", not of \"PUBLIC KEY\"",
		"take WatchdogSec= out of the drop-ins", "CPUQuota= and ExecStartPre=", "RuntimeDirectoryMode=\"0755\"",
		"mkdir -p /var/lib/image-update-agent/x", "ssh -p 2222 host", "docker run -p 80:80 nginx", "cp -p a b",
		"want REPOSITORY:TAG@DIGEST", "docker://REPOSITORY:TAG oci:DIR:REPOSITORY:TAG", "repository:tag@digest",
		"LoadCredential=image-update-agent.auth:/etc/x", "ImportCredential=image-update-agent.auth",
		"https://kubernetes.io/docs/reference/#pod-security-standards", "login -u user --password-stdin",
		"token: unauthorized", "auth: token server auth.example.com: 403", "token: 401 Unauthorized",
		"credentials: no file", "token: https://h/token: EOF", "token: auth.example.com:5000: connection refused",
		"3d1219c7-c4c5-404a-aa1f-6d2a48adfda4", "keys: /etc/image-update-agent/keys/a.pub: ok",
	} {
		assert.Equal(t, text, outside.Mask(text))
	}
}

func TestMaskedErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	_, err := url.Parse(unparsed)
	got := outside.Error(fmt.Errorf("hosts.toml: %w", errors.Join(err, io.EOF)))
	assert.NotContains(t, got.Error(), "hunter2")
	assert.Contains(t, got.Error(), "@host")
	require.ErrorIs(t, got, io.EOF)
}

func FuzzMask(f *testing.F) {
	for _, shape := range shapes {
		f.Add(fmt.Sprintf(shape, "hunter2hunter2"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := outside.Mask(text)
		assert.LessOrEqual(t, len(once), 4*len(text)+16)
		_ = outside.Mask(once)
		assert.LessOrEqual(t, len(outside.Text(text)), outside.MaxText)
		assert.LessOrEqual(t, len(outside.Error(errors.New(text)).Error()), outside.MaxError)
	})
}

// All texts of a document are masked, and other values do not change.
func TestHideMasksADocument(t *testing.T) {
	t.Parallel()
	type word string
	type part struct {
		Text  string
		Word  word
		Notes []string
		By    map[string]string
		In    map[string]part
		At    *part
	}
	const secret = "https://u:hunter2@host/v2/"
	shared := map[string]string{"a": "plain"}
	doc := part{
		Text: secret, Word: secret, Notes: []string{"a", secret}, By: map[string]string{"a": secret},
		In: map[string]part{"b": {Text: secret}}, At: &part{Text: secret, By: shared},
	}
	outside.Hide(&doc)
	const want = "https://***@host/v2/"
	assert.Equal(t, part{
		Text: want, Word: secret, Notes: []string{"a", want}, By: map[string]string{"a": want},
		In: map[string]part{"b": {Text: want}}, At: &part{Text: want, By: shared},
	}, doc)
}

func TestLogHasNoSecret(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: outside.HideAttr}))
	_, err := url.Parse(unparsed)
	at, errURL := url.Parse("https://user:hunter2@host")
	require.NoError(t, errURL)
	log.Warn("source does not answer", "err", err, "text", "password=hunter2", "url", at, "n", 3,
		slog.Group("g", "err", fmt.Errorf("a: %w", err)))
	assert.NotContains(t, out.String(), "hunter2")
	assert.Contains(t, out.String(), "n=3")
}

// hiddenOfOurs are the texts of this project that look like a secret or its place; they are not output.
var hiddenOfOurs = []string{
	"%s:%s@%s\n", // of REPOSITORY:TAG@DIGEST
	"TestNoRequestAfterFirst429",
}

// TestOurOwnTextsStay: the texts of the agent and its pages are not secrets. Mask does not change any string in the
// code, nor any line of the users' pages, the units and the packaging.
func TestOurOwnTextsStay(t *testing.T) {
	t.Parallel()
	texts := map[string]string{} // text to one of its places
	for _, pattern := range []string{"docs/*.md", "docs/man/*.md", "packaging/*.yaml", "packaging/*/*.yml", "systemd/*", "README.md"} {
		pages, err := filepath.Glob("../../../" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages, pattern)
		for _, page := range pages {
			info, err := os.Stat(page)
			require.NoError(t, err)
			if info.IsDir() || strings.HasSuffix(page, ".go") {
				continue
			}
			data, err := os.ReadFile(page)
			require.NoError(t, err)
			for n, line := range strings.Split(string(data), "\n") {
				texts[line] = page + ":" + strconv.Itoa(n+1)
			}
		}
	}
	for _, tree := range []string{"agent", "cmd", "internal", "manifests", "tags"} {
		require.NoError(t, filepath.WalkDir("../../../"+tree, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isPattern(call) {
					return false
				}
				literal, ok := n.(*ast.BasicLit)
				if field, isField := n.(*ast.Field); isField {
					field.Tag = nil
				}
				if !ok || literal.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(literal.Value); assert.NoError(t, err) {
					texts[text] = files.Position(literal.Pos()).String()
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, len(texts), 5000)
	for text, at := range texts {
		if slices.ContainsFunc(hiddenOfOurs, func(s string) bool { return strings.Contains(text, s) }) {
			continue
		}
		assert.Equal(t, text, outside.Mask(text), at)
	}
}

// isPattern reports whether a call compiles a regular expression, which is not output.
func isPattern(call *ast.CallExpr) bool {
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	in, ok := of.X.(*ast.Ident)
	return of.Sel.Name == "MustCompile" || ok && in.Name == "lazyregexp"
}

// lines returns the lines of a file of testdata, without comments.
func lines(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	var out []string
	for all := bufio.NewScanner(file); all.Scan(); {
		if text := all.Text(); text != "" && !strings.HasPrefix(text, "# ") {
			out = append(out, text)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// Real tags, hosts, file names and errors are no secrets, alone and in the texts in which the agent shows them.
func TestRealNamesAndErrorsStay(t *testing.T) {
	t.Parallel()
	for _, text := range lines(t, "plain.txt") {
		assert.Equal(t, text, outside.Mask(text))
	}
	for _, tag := range lines(t, "tags.txt") {
		for _, text := range []string{
			tag, "r.example.com/a/b:" + tag, "docker.io/library/b:" + tag + "@sha256:" + strings.Repeat("0a", 32),
			"b:" + tag, "b " + tag + " (minor)", "r.example.com/a/b:" + tag + ": 404 Not Found",
			"https://r.example.com/v2/a/b/manifests/" + tag + ": 503 Service Unavailable",
			`failed to pull and unpack image "r.example.com:5000/a/b:` + tag + `": not found`, "rebuild: " + tag + " -> " + tag,
			"image=r.example.com/a/b:" + tag, `{"tag":"` + tag + `"}`,
		} {
			assert.Equal(t, text, outside.Mask(text))
		}
	}
}

// Tokens in the public formats of those who issue them are masked wherever they stand. The tokens are made up; ~ stands
// between their parts, so that no scanner takes this file for a leak.
func TestTokensOfKnownFormatsAreMasked(t *testing.T) {
	t.Parallel()
	for _, line := range lines(t, "tokens.txt") {
		_, written, _ := strings.Cut(line, "\t")
		token := strings.ReplaceAll(written, "~", "")
		for _, text := range []string{
			token, "answer " + token + " is not valid", `unexpected "` + token + `" in line 3`, "a/b:" + token,
			"/v2/a/b/" + token + "/x", "https://r.example.com/v2/" + token,
		} {
			got := outside.Mask(text)
			assert.NotContains(t, got, token, line)
			assert.NotContains(t, got, token[len(token)/2:], line)
		}
	}
}

// A tag that looks like a token is kept where only a parsed name can be, and in a reference. Other texts are masked.
func TestNamesOfImagesStay(t *testing.T) {
	t.Parallel()
	const tag, secret = "aB3dE5fG7hI9jK1lM3nO5pQ7", "https://u:hunter2@host/v2/"
	type image struct{ Image, Tag, From, To, Error string }
	doc := image{Image: "r.example.com:5000/a/b", Tag: tag, From: tag + "@sha256:0a1b", To: secret, Error: "odd: " + tag}
	outside.Hide(&doc)
	assert.Equal(t, image{
		Image: "r.example.com:5000/a/b", Tag: tag, From: tag + "@sha256:0a1b", To: "https://***@host/v2/", Error: "odd: ***",
	}, doc)
	for _, text := range []string{
		"r.example.com/a/b:" + tag + ": 404 Not Found", `pull "docker.io/library/b:1.2-` + tag + `": not found`,
	} {
		assert.Equal(t, text, outside.Mask(text))
	}
	assert.NotContains(t, outside.Mask("https://r.example.com/a:"+tag), tag, "a URL has no tag")
}
