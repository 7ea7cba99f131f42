// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// The page docs/publish.md from the first key to a node that runs what was promoted: its commands, both of its CI files
// with image-catalog in its container image, and the configuration that init prints.
func TestFromABuildToProd(t *testing.T) {
	t.Parallel()
	const host = "registry.example.com"
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	p := &publishers{node: n, registry: n.Registry, program: n.CatalogProgram()}
	p.throughProxy(t, host+"/releases/catalog")
	text, err := os.ReadFile("../../docs/publish.md")
	require.NoError(t, err)
	page, dir := story.Page(text), t.TempDir()
	p.registry.Publish("velum", "4.0.0-rev1-build1.1", node.Image{})
	promoted := p.registry.Publish("velum", "4.0.0-rev1-build1.2", node.Image{Answer: "two"})
	p.env = append(p.env, `DOCKER_AUTH_CONFIG={"auths":{"`+host+`":{"auth":"Y2k6czNjcmV0"}}}`) // ci:s3cret
	p.registry.Intercept(wantsLogin)

	config := p.shellOutput(t, dir, plainShell+page.Block(t, "sh", 0))
	secret, err := os.ReadFile(filepath.Join(dir, "ci.key"))
	require.NoError(t, err)
	ci := &ciRunner{root: p.containerImage(t), env: map[string]string{"http_proxy": "http://" + p.registry.Host}}
	ci.env["CATALOG_KEY"] = string(secret)
	ci.env["DOCKER_AUTH_CONFIG"] = strings.TrimPrefix(p.env[len(p.env)-1], "DOCKER_AUTH_CONFIG=")
	for n, run := range []func(*testing.T, string){ci.runActions, ci.runGitLab} {
		file := page.Block(t, "yaml", n)
		assert.Less(t, strings.Count(file, "\n")+1, 20, "lines of a CI file")
		run(t, file)
	}
	p.shell(t, dir, plainShell+page.Block(t, "sh", 1)+"\n"+page.Block(t, "sh", 2))
	log := p.does(t, "log", "stage", "--plain-http")
	assert.Contains(t, log, "): anna added 1 release\n  run: https://forge.example.com/caasp/velum/actions/runs/42\n")
	assert.Contains(t, log, "): bert added 1 release\n  run: https://gitlab.example.com/caasp/velum/-/jobs/7\n")

	p.registry.Intercept(nil)
	_, config, found := strings.Cut(config, "\ncatalog:\n  repository: "+host+"/releases/catalog\n  channel: prod\n")
	require.True(t, found)
	config, _, _ = strings.Cut(config, "\n\n")
	n.WriteFile(story.ConfigFile, "catalog:\n  repository: "+host+"/releases/catalog\n  channel: prod\n"+config+"\n")
	pub, err := os.ReadFile(filepath.Join(dir, "prod.pub"))
	require.NoError(t, err)
	n.WriteFile("etc/image-update-agent/catalog-keys/prod.pem", string(pub))
	n.WriteHosts(host, n.Registry)
	story.Template(n, 1, host+"/velum:__TAG__")
	s := story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	assert.Contains(t, n.ReadFile(story.VelumYAML), "@"+promoted)
	assert.EqualValues(t, 2, s.Catalog.Version)
}

// plainShell has image-catalog use http; 3 is nothing to do.
const plainShell = `image-catalog() { case $1 in keygen) command image-catalog "$@";; *) command image-catalog "$@" --plain-http || [ $? = 3 ];; esac; }` + "\n"

// wantsLogin answers requests without the login ci:s3cret.
func wantsLogin(w http.ResponseWriter, r *http.Request) bool {
	if user, secret, ok := r.BasicAuth(); ok && user == "ci" && secret == "s3cret" {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="catalogs"`)
	http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
	return true
}

// shellOutput runs commands of a page, and returns what they print.
func (p *publishers) shellOutput(t *testing.T, dir, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = dir, p.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, out)
	return string(out)
}

// containerImage makes the container image as tools/package does, copies it to a registry and back, and returns its files.
func (p *publishers) containerImage(t *testing.T) string {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	story.Shell(t, story.Checkout(t), `go run ./tools/mkimage image-catalog 1.0 0 "$1=$2" >"$3/image.tar" && tar -C "$3" -xf "$3/image.tar"`,
		runtime.GOARCH, p.program, dir)
	registry := p.node.StartRegistryWith(node.RegistryOptions{Program: node.Distribution3})
	story.Shell(t, dir, `PATH=$1:$PATH; crane push --insecure --index . "$2" && crane export --insecure --platform linux/"$4" "$2" - | tar -C "$3" -xf -`,
		p.node.Part("crane"), registry.Ref("image-catalog:1.0"), root, runtime.GOARCH)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the image has the program and nothing else")
	return root
}

// ciRunner runs the steps of CI files that use the container image of image-catalog.
type ciRunner struct {
	root string // files of the image
	env  map[string]string
}

// container runs the image with arguments and variables, as docker does.
func (r *ciRunner) container(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/image-catalog", append(args, "--plain-http")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.root}
	cmd.Dir = "/"
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s: %s", args, &out)
}

// runActions runs the last step of a workflow of a forge.
func (r *ciRunner) runActions(t *testing.T, file string) {
	t.Helper()
	var doc struct {
		Env  map[string]string
		Jobs map[string]struct {
			Steps []struct {
				Uses, Run string
				With      struct{ Args string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(file), &doc))
	env := map[string]string{
		"GITHUB_ACTOR": "anna", "GITHUB_SERVER_URL": "https://forge.example.com", "GITHUB_REPOSITORY": "caasp/velum",
		"GITHUB_RUN_ID": "42", "http_proxy": r.env["http_proxy"],
	}
	set := func(text string) string {
		text = strings.ReplaceAll(text, "${{ github.ref_name }}", "4.0.0-rev1-build1.1")
		text = strings.ReplaceAll(text, "${{ env.IMAGE }}", env["IMAGE"])
		for _, secret := range []string{"CATALOG_KEY", "DOCKER_AUTH_CONFIG"} {
			text = strings.ReplaceAll(text, "${{ secrets."+secret+" }}", r.env[secret])
		}
		return text
	}
	for name, value := range doc.Env {
		env[name] = set(value)
	}
	steps := doc.Jobs["build"].Steps
	require.Len(t, steps, 3)
	assert.Equal(t, "docker://registry.example.com/image-catalog:1.0", steps[2].Uses)
	r.container(t, env, strings.Fields(set(steps[2].With.Args))...)
}

// runGitLab runs the last line of a job's script.
func (r *ciRunner) runGitLab(t *testing.T, file string) {
	t.Helper()
	var doc map[string]struct {
		Variables map[string]string
		Script    []string
	}
	require.NoError(t, yaml.Unmarshal([]byte(file), &doc))
	job := doc["velum"]
	variables := maps.Clone(r.env)
	variables["GITLAB_USER_LOGIN"], variables["CI_JOB_URL"] = "bert", "https://gitlab.example.com/caasp/velum/-/jobs/7"
	for name, value := range job.Variables {
		variables[name] = strings.ReplaceAll(value, "$CI_COMMIT_TAG", "4.0.0-rev1-build1.2")
	}
	require.Len(t, job.Script, 2)
	words := strings.Fields(strings.ReplaceAll(job.Script[1], `"$IMAGE"`, variables["IMAGE"]))
	at := slices.Index(words, "registry.example.com/image-catalog:1.0")
	require.Equal(t, []string{"docker", "run", "--rm"}, words[:3])
	env := map[string]string{"http_proxy": r.env["http_proxy"]}
	for n := 3; n < at; n += 2 {
		require.Equal(t, "-e", words[n])
		env[words[n+1]] = variables[words[n+1]]
	}
	r.container(t, env, words[at+1:]...)
}
