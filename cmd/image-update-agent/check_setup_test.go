// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loop is what CaaS Platform's script does with images; rest what it does besides.
const (
	loop = `tmp_dir=$(mktemp -d)
cp /usr/share/caasp-container-manifests/manifests/*.yaml $tmp_dir
for tag in /usr/share/suse-docker-images/native/*.tag; do
  sed -i "s%$name:__TAG__%$name:$(cat $tag)%g" $tmp_dir/*.yaml
done
cp $tmp_dir/*.yaml /etc/kubernetes/manifests/
`
	rest = `#!/bin/bash
# cp x /etc/kubernetes/manifests/ and __TAG__ were here
swapoff -a
sed -i -e "s|tx_update_reboot_needed:.*|tx_update_reboot_needed: false|g" /etc/salt/grains
`
	usual  = "usr/share/caasp-container-manifests/admin-node-setup.sh"
	vendor = "usr/lib/systemd/system/admin-node-setup.service"
	admins = "etc/systemd/system/admin-node-setup.service"
)

// setups are the files of hosts, and what is found; "": nothing is said.
var setups = map[string]struct {
	files   map[string]string
	verdict string
	script  string
}{
	"none":                        {nil, "", ""},
	"with its loop":               {map[string]string{usual: rest + loop}, verdictWarn, usual},
	"without":                     {map[string]string{usual: rest}, verdictOK, usual},
	"in another place":            {map[string]string{"usr/sbin/admin-node-setup.sh": rest + loop}, verdictWarn, "usr/sbin/admin-node-setup.sh"},
	"where the unit says":         {map[string]string{vendor: "[Service]\nExecStart=/opt/setup.sh --now\n", "opt/setup.sh": rest + loop, usual: rest}, verdictWarn, "opt/setup.sh"},
	"by a shell":                  {map[string]string{vendor: "[Service]\nExecStart=-/bin/bash -e /opt/setup.sh\n", "opt/setup.sh": rest + loop}, verdictWarn, "opt/setup.sh"},
	"replaced by an admin's unit": {map[string]string{vendor: "ExecStart=/" + usual, usual: rest + loop, admins: "ExecStart=/etc/setup.sh\n", "etc/setup.sh": rest}, verdictOK, "etc/setup.sh"},
	"replaced by a drop-in": {map[string]string{
		vendor: "ExecStart=/" + usual, usual: rest + loop, "etc/setup.sh": rest, admins + ".d/mine.conf": "[Service]\nExecStart=\nExecStart=/etc/setup.sh\n",
	}, verdictOK, "etc/setup.sh"},
	"a unit without its script": {map[string]string{vendor: "ExecStart=/" + usual}, "", ""},
	"a copy by install":         {map[string]string{usual: rest + "install -m644 x.yaml /etc/kubernetes/manifests/x.yaml\n"}, verdictWarn, usual},
}

func TestCheckSetup(t *testing.T) {
	t.Parallel()
	for name, c := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings{root: t.TempDir()}
			for file, text := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(s.at(file)), 0o755))
				require.NoError(t, os.WriteFile(s.at(file), []byte(text), 0o600))
			}
			got := s.checkSetup()
			if c.verdict == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			found(t, got[0], c.verdict, s.at(c.script)+" ")
			if c.verdict == verdictWarn {
				assert.FileExists(t, "../../docs/install.md")
				text, err := os.ReadFile("../../docs/install.md")
				require.NoError(t, err)
				assert.Contains(t, string(text), "\n## The image loop of admin-node-setup.sh\n", "the remedy names it")
			}
		})
	}
}

func TestAMaskedSetupDoesNothing(t *testing.T) {
	t.Parallel()
	s := settings{root: t.TempDir()}
	for file, text := range map[string]string{usual: rest + loop, vendor: "ExecStart=/" + usual} {
		require.NoError(t, os.MkdirAll(filepath.Dir(s.at(file)), 0o755))
		require.NoError(t, os.WriteFile(s.at(file), []byte(text), 0o600))
	}
	require.Len(t, s.checkSetup(), 1)
	require.NoError(t, os.MkdirAll(filepath.Dir(s.at(admins)), 0o755))
	require.NoError(t, os.Symlink("/dev/null", s.at(admins)))
	assert.Empty(t, s.checkSetup())
}
