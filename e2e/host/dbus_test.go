// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// busObject is the object as arguments of busctl: service, path, interface.
var busObject = []string{
	"org.opensuse.ImageUpdateAgent1", "/org/opensuse/ImageUpdateAgent1", "org.opensuse.ImageUpdateAgent1",
}

// joesRule allows joe to hold images, and nothing else.
const joesRule = `polkit.addRule(function(action, subject) {
	if (action.id == "org.opensuse.ImageUpdateAgent1.hold" && subject.user == "joe") { return polkit.Result.YES; }
});
`

// capitals begin the words of a method's name.
var capitals = regexp.MustCompile("[A-Z]")

// busctl calls the object as a user of the host; an empty name is root.
func busctl(h *host.Host, user, verb string, args ...string) host.Result {
	argv := append([]string{"busctl", "--timeout=4min", verb}, busObject...)
	return h.Run(host.Command{User: user, Argv: append(argv, args...)})
}

// TestHostBus uses the D-Bus object on the real system bus, with the shipped unit and the real polkit: every user may
// read it and receives its signals; root may change things, and so may a user whom an admin's polkit rule allows it.
func TestHostBus(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, _ := installed(t, root, node.Options{Containerd: node.Containerd2})
		require.Equal(t, "running", h.Boot())
		h.AddUser("joe")
		h.Must("systemctl", "start", "polkit.service") // activated by D-Bus, it could miss the timeout

		shown := h.Run(host.Command{User: "joe", Argv: append([]string{"busctl", "introspect"}, busObject...)})
		require.Equal(t, 0, shown.Code, shown.Stderr)
		for _, line := range []string{
			`\.Apply +method +asbba\(ss\) +a\(ssss\) `, `\.State +property +s +"\w+" +emits-change`, `\.Changed +signal +sst `,
		} {
			assert.Regexp(t, line, shown.Stdout)
		}
		for _, call := range [][]string{
			{"Check"},
			{"Apply", "asbba(ss)", "0", "true", "false", "0"},
			{"Rollback", "asb", "0", "true"},
			{"Hold", "asbts", "0", "true", "0", ""},
			{"Resume", "asb", "0", "true"},
			{"ReleaseLock"},
			{"ForgetCatalog"},
			{"EnableLocalRegistry", "sb", "registry.suse.com", "true"},
			{"DisableLocalRegistry", "s", "registry.suse.com"},
		} {
			r := busctl(h, "joe", "call", call...)
			assert.NotZero(t, r.Code, call)
			action := strings.ToLower(strings.TrimPrefix(capitals.ReplaceAllString(call[0], "-$0"), "-"))
			assert.Contains(t, r.Stderr, "polkit requires a password for org.opensuse.ImageUpdateAgent1."+action)
		}
		r := h.Run(host.Command{User: "joe", Argv: append([]string{"busctl", "set-property"}, append(busObject, "State", "s", "current")...)})
		assert.Contains(t, r.Stderr, "Access denied")

		h.Must("systemd-run", "--quiet", "--unit=ears", "--uid=joe", "dbus-monitor", "--system",
			"type='signal',sender='org.opensuse.ImageUpdateAgent1'")
		node.Eventually(t, "joe listens", story.Ready, func() error {
			if r = busctl(h, "", "call", "Check"); !strings.Contains(h.Journal("ears.service"), "member=PropertiesChanged") {
				return errors.New("not yet")
			}
			return nil
		})
		assert.Contains(t, r.Stdout, `ss "applying" "velum.yaml: dashboard has not started yet"`, "there is no kubelet: %s", r.Stderr)
		n.Registry.Publish("demo/velum", "4.0.0-rev2-build2.1", node.Image{})
		node.Eventually(t, "joe hears of it", story.Ready, func() error {
			if r := busctl(h, "", "call", "Check"); !strings.HasPrefix(r.Stdout, `ss "staged"`) {
				return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
			}
			heard := h.Journal("ears.service")
			for _, signal := range []string{"member=Changed\n   string \"staged\"", "member=PropertiesChanged", "member=Progress", "member=ProgressDetails"} {
				if !strings.Contains(heard, signal) {
					return fmt.Errorf("no %s: %s", signal, heard)
				}
			}
			return nil
		})
		assert.Equal(t, "b true\n", busctl(h, "joe", "get-property", "UpdatesAvailable").Stdout)
		updates := busctl(h, "joe", "get-property", "Updates").Stdout
		assert.Contains(t, updates, `"change" s "revision"`)
		assert.Contains(t, updates, `"to" s "4.0.0-rev2-build2.1"`)

		h.WriteFile("/etc/polkit-1/rules.d/40-joe.rules", joesRule)
		node.Eventually(t, "polkit reads the rule", story.Ready, func() error {
			if r := busctl(h, "joe", "call", "Hold", "asbts", "1", "velum", "false", "0", "not now"); r.Code != 0 {
				return fmt.Errorf("%s", r.Stderr)
			}
			return nil
		})
		assert.NotZero(t, busctl(h, "joe", "call", "Resume", "asb", "0", "true").Code, "another action")
		assert.Equal(t, "as 1 \"Hold\"\n", busctl(h, "joe", "call", "Allowed").Stdout)
		assert.Equal(t, `as 9 "Apply" "Check" "DisableLocalRegistry" "EnableLocalRegistry" "ForgetCatalog" "Hold" `+
			`"ReleaseLock" "Resume" "Rollback"`+"\n", busctl(h, "", "call", "Allowed").Stdout)
		standing := busctl(h, "joe", "get-property", "StandingHolds").Stdout
		assert.Contains(t, standing, `"user" s "joe"`)
		assert.Contains(t, standing, `"via" s "bus"`)
		r = busctl(h, "", "call", "Apply", "asbba(ss)", "0", "false", "false", "0")
		assert.Contains(t, r.Stderr, "give names of images or all images, not both")
		r = busctl(h, "", "call", "Apply", "asbba(ss)", "1", "velum", "false", "false", "0")
		assert.Contains(t, r.Stderr, "Call failed: velum.yaml: held: hold: ")
		assert.Contains(t, busctl(h, "joe", "get-property", "Holds").Stdout, "not now")
		assert.Zero(t, busctl(h, "", "call", "Resume", "asb", "0", "true").Code)
		assert.Contains(t, busctl(h, "", "call", "Resume", "asb", "0", "true").Stderr, "there was no such hold")

		joe := strings.TrimSpace(h.Must("id", "--user", "joe"))
		assert.Contains(t, h.Journal(host.Service), `msg="request on the bus" method=Hold uid=`+joe+" images=[velum]")
		is := h.Show(host.Service, "NRestarts", "Result")
		assert.Equal(t, map[string]string{"NRestarts": "0", "Result": "success"}, is)
	})
}
