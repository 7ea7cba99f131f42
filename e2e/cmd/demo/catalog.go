// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// catalogStory is the demo of release catalogs: a node that follows prod.
func catalogStory(s *stage) {
	d := newCatalogDemo(s)
	d.start()
	d.stageGetsABuild()
	d.promote()
	d.withdraw()
	d.replay()
	s.step("The end: everything is taken away")
}

// catalogDemo is a node that follows a channel, with its publisher.
type catalogDemo struct {
	*demo
	dir string // of the keys
}

func newCatalogDemo(s *stage) *catalogDemo {
	d := &catalogDemo{demo: newDemo(s)}
	dir, err := os.MkdirTemp("", "demo-catalog-")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	d.dir = dir
	return d
}

func (d *catalogDemo) start() {
	d.step("The publisher makes the channels stage and prod, signed by its key")
	public := d.makeKey()
	for _, channel := range []string{"stage", "prod"} {
		d.catalog("init", channel, "--key", "prod.key")
	}
	for _, image := range []string{"velum", "velum-db"} {
		d.build(image, "4.0.0-rev1-build1.1", 1)
	}
	d.catalog("promote", "stage", "prod", "--all", "--key", "prod.key")

	d.step("The node follows prod, and trusts that key")
	d.node.WriteFile("etc/image-update-agent/catalog-keys/prod.pem", public)
	d.node.WriteFile("etc/image-update-agent/config.yaml", "catalog:\n  repository: "+d.node.Registry.Ref("catalog")+
		"\n  channel: prod\n  keys: [/etc/image-update-agent/catalog-keys]\n")
	text := fmt.Sprintf(podTemplate, d.node.Registry.Ref("demo/velum"), d.port) + fmt.Sprintf(
		"  - name: db\n    image: %s:__TAG__\n    args: [\"127.0.0.1:%d\"]\n",
		d.node.Registry.Ref("demo/velum-db"), d.node.FreePort())
	d.node.WriteFile(template, text)
	d.node.WriteFile(grain, "roles:\n- admin\n")
	d.node.StartAgent("run")
	node.Eventually(d, "the daemon's socket", time.Minute, func() error {
		_, err := os.Stat(d.node.Path("run/image-update-agent/agent.sock"))
		return err
	})
	d.agent("check")
	d.node.WaitAnswer(d.port, "4.0.0-rev1-build1.1")
	d.diff("the pod manifest names the digests of the catalog, so that kubelet starts nothing else", template, velum)
}

func (d *catalogDemo) stageGetsABuild() {
	d.step("Stage gets a build of both images, a set; the tags in the registry move on. Prod gets nothing")
	d.build("velum", "4.0.0-rev1-build1.2", 2, "--set", "caasp-4.5.2")
	d.build("velum-db", "4.0.0-rev1-build1.2", 2, "--set", "caasp-4.5.2")
	d.agent("check")
	d.answer()
}

func (d *catalogDemo) promote() {
	d.step("The set is promoted: the node is offered both images, and an admin approves")
	d.catalog("promote", "stage", "prod", "--set", "caasp-4.5.2", "--key", "prod.key")
	d.agent("check")
	d.agent("apply")
	d.node.WaitAnswer(d.port, "4.0.0-rev1-build1.2")
	d.answer()
}

func (d *catalogDemo) withdraw() {
	d.step("The release is withdrawn; the node says why, and that it runs it")
	d.catalog("withdraw", "prod", d.node.Registry.Ref("demo/velum:4.0.0-rev1-build1.2"),
		"--reason", "loses its session secret", "--instead", "4.0.0-rev1-build1.1", "--key", "prod.key")
	const held = 4
	d.agentEnds(held, "check")
	d.showGrain("the grain, for the admin's UI")
}

func (d *catalogDemo) replay() {
	d.step("Somebody puts an older catalog back, in which nothing is withdrawn. The node refuses it")
	d.node.Registry.Tag("catalog", "prod-v00000003", "prod")
	d.agentEnds(1, "check")
	d.agent("catalog", "show")
	d.answer()
}

func (d *catalogDemo) build(image, long string, seed uint64, more ...string) {
	digest := d.node.Registry.Publish("demo/"+image, long, node.Image{Layers: []node.Layer{{Seed: seed, Size: 1 << 20}}})
	d.say("published %s:%s (%s)", image, long, digest)
	ref := d.node.Registry.Ref("demo/" + image + ":" + long)
	d.catalog(append([]string{"add", "stage", ref, "--key", "prod.key"}, more...)...)
}

// catalog runs a command of the publisher and prints its output.
func (d *catalogDemo) catalog(args ...string) {
	d.say("$ image-catalog %s", strings.Join(args, " "))
	cmd := exec.CommandContext(d.Context(), d.node.CatalogProgram(), args...)
	cmd.Dir = d.dir
	cmd.Env = []string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH"), "IMAGE_CATALOG=" + d.node.Registry.Ref("catalog")}
	out, err := cmd.CombinedOutput()
	d.text(string(out))
	if err != nil {
		d.Fatalf("image-catalog %s: %v", args[0], err)
	}
}

// makeKey writes prod.key and returns its public key.
func (d *catalogDemo) makeKey() (public string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		d.Fatalf("%v", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = os.WriteFile(filepath.Join(d.dir, "prod.key"),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
	}
	if err != nil {
		d.Fatalf("%v", err)
	}
	open, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		d.Fatalf("%v", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open}))
}
