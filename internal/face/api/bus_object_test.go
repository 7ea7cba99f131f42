// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

const nobodysID = 65534

func someStatus() status.Status {
	last := time.UnixMicro(1_700_000_000_000_001)
	return status.Status{
		Version: "1.2", State: status.StateStaged, Reason: "waiting for approval: velum.yaml (rebuild)", LastCheck: &last,
		Updates:    []status.AnnouncedUpdate{{Image: "a/velum", Change: "rebuild", From: "1", To: "2", Digest: "sha256:00", Severity: "important", Fixes: []string{"CVE-2026-1234"}}},
		NotAllowed: []status.NotAllowed{{Image: "a/etcd", Tag: "3", Rule: "updates", Key: "updates: major"}},
		PodManifests: []status.PodStatus{
			{PodManifest: "velum.yaml", Holds: []status.Hold{{Name: "hold", Reason: "everything"}}}, {PodManifest: "etcd.yaml"},
		},
		Images: []status.ImageStatus{
			{
				Image: "a/velum", Container: "velum", PodManifest: "velum.yaml", Holds: []status.Hold{{Name: "hold", Reason: "everything"}},
				Running: &status.Named{Tag: "1", Digest: "sha256:01"}, Previous: &status.Named{Tag: "0", Digest: "sha256:00"},
				Withdrawn: &catalog.Withdrawal{Reason: "broken", To: "2"},
			},
			{Image: "a/tracked", Holds: []status.Hold{{Name: "disk", Reason: "full"}}},
		},
		Activity: status.ActivityStaging,
		Sources:  []status.SourceStatus{{Repository: "a/velum", Host: "h", Failures: 2, Error: "away", Cause: "dns", RetryAt: &last}},
		StandingHolds: []status.StandingHold{{
			Repository: "*", Name: "hold", Reason: "demo", Since: &last, By: status.Actor{Kind: "person", Via: "bus", UID: new(uint32(7)), User: "joe"},
		}},
		Failures: []status.Failure{{PodManifest: "etcd.yaml", Kind: "rolled-back", From: "1", To: "2", RolledBackTo: "1", At: &last, Cause: "not-up"}},
		History:  []status.HistoryEntry{{PodManifest: "etcd.yaml", Container: "etcd", At: last, Result: "failed", By: status.Actor{Kind: "auto"}}},
	}
}

// Everybody may read, and sees what the status says.
func TestPropertiesAreForEverybody(t *testing.T) {
	t.Parallel()
	system := onBus(t, newWatched(&daemon{status: someStatus()}))
	const then = uint64(1_700_000_000_000_001)
	element := func(pairs ...any) map[string]dbus.Variant {
		out := map[string]dbus.Variant{}
		for n := 0; n < len(pairs); n += 2 {
			out[pairs[n].(string)] = dbus.MakeVariant(pairs[n+1])
		}
		return out
	}
	image := func(of ...any) map[string]dbus.Variant {
		all := element("podManifest", "", "container", "", "follow", "", "running", "", "runningDigest", "", "previous", "",
			"previousDigest", "", "offered", "", "offeredDigest", "", "change", "", "error", "", "errorKind", "", "runs", false,
			"staged", false, "pickedUp", false)
		maps.Copy(all, element(of...))
		return all
	}
	want := map[string]any{
		"Version": "1.2", "State": "staged", "Reason": "waiting for approval: velum.yaml (rebuild)",
		"UpdatesAvailable": true, "LastCheck": then, "NextCheck": uint64(0), "Activity": "staging", "Cut": []string{},
		"StandingHolds": []map[string]dbus.Variant{element("repository", "*", "name", "hold", "reason", "demo", "since", then,
			"until", uint64(0), "by", "person", "via", "bus", "user", "joe", "uid", uint32(7))},
		"Failures": []map[string]dbus.Variant{element("podManifest", "etcd.yaml", "container", "", "image", "",
			"kind", "rolled-back", "from", "1", "to", "2", "rolledBackTo", "1", "at", then, "cause", "not-up", "reason", "")},
		"History": []map[string]dbus.Variant{element("podManifest", "etcd.yaml", "container", "etcd", "change", "", "image", "",
			"from", "", "to", "", "digest", "", "result", "failed", "cause", "", "reason", "", "at", then, "by", "auto", "via", "",
			"user", "", "severity", "", "fixes", []string{})},
		"Sources": []map[string]dbus.Variant{element("repository", "a/velum", "host", "h", "error", "away", "cause", "dns",
			"mirror", false, "failures", uint64(2), "lastSuccess", uint64(0), "retryAt", then)},
		"Images": []map[string]dbus.Variant{
			image("image", "a/velum", "container", "velum", "podManifest", "velum.yaml", "running", "1",
				"runningDigest", "sha256:01", "previous", "0", "previousDigest", "sha256:00", "runs", true),
			image("image", "a/tracked"),
		},
		"Updates": []map[string]dbus.Variant{
			element("image", "a/velum", "change", "rebuild", "from", "1", "to", "2", "digest", "sha256:00",
				"severity", "important", "fixes", []string{"CVE-2026-1234"}),
		},
		"NotAllowed": []map[string]dbus.Variant{
			element("image", "a/etcd", "tag", "3", "rule", "updates", "key", "updates: major"),
		},
		"Holds": []map[string]dbus.Variant{
			element("podManifest", "velum.yaml", "image", "", "name", "hold", "reason", "everything", "by", "", "until", uint64(0)),
			element("podManifest", "", "image", "a/tracked", "name", "disk", "reason", "full", "by", "", "until", uint64(0)),
		},
		"Withdrawn": []map[string]dbus.Variant{
			element("podManifest", "velum.yaml", "container", "velum", "image", "a/velum", "tag", "1", "digest", "sha256:01",
				"reason", "broken", "to", "2"),
		},
	}
	for _, conn := range []*dbus.Conn{system.Connect(t), system.ConnectAs(t, nobodysID)} {
		var all map[string]dbus.Variant
		require.NoError(t, call(t, conn, propertiesFace+".GetAll", BusName).Store(&all))
		for name, value := range want {
			var one dbus.Variant
			require.NoError(t, call(t, conn, propertiesFace+".Get", BusName, name).Store(&one), name)
			assert.Equal(t, value, one.Value(), name)
			assert.Equal(t, value, all[name].Value(), name)
		}
		assert.IsType(t, uint64(0), all["Revision"].Value())
		assert.Len(t, all, len(want)+1)
		require.NoError(t, call(t, conn, propertiesFace+".GetAll", peerFace).Store(&all))
	}
}

// A status of any size and content is one that a bus takes.
func TestPropertiesAreBounded(t *testing.T) {
	t.Parallel()
	s := status.Status{Reason: "\xff\x00\n" + strings.Repeat("ä", 10_000)}
	for n := range 1000 {
		s.Updates = append(s.Updates, status.AnnouncedUpdate{Image: fmt.Sprint(n, strings.Repeat("\x1b", 10_000))})
		s.PodManifests = append(s.PodManifests, status.PodStatus{Holds: make([]status.Hold, 3)})
		s.Images = append(s.Images, status.ImageStatus{Holds: make([]status.Hold, 3)})
	}
	before := time.Unix(-1, 0)
	s.LastCheck = &before
	all := properties(s)
	assert.Equal(t, uint64(0), all["LastCheck"].Value(), "a clock that was never set")
	assert.Len(t, all["Updates"].Value(), maxListed)
	assert.Len(t, all["Holds"].Value(), maxListed)
	assert.Equal(t, []string{"Holds", "Images", "Updates"}, all["Cut"].Value(), "a list says that it is cut")
	s.Updates, s.PodManifests, s.Images = s.Updates[:maxListed], nil, s.Images[:maxListed]
	for n := range s.Images {
		s.Images[n].Holds = make([]status.Hold, 1)
	}
	assert.Empty(t, properties(s)["Cut"].Value(), "a full list is not")
	system := onBus(t, newWatched(&daemon{status: s}))
	var got map[string]dbus.Variant
	require.NoError(t, call(t, system.Connect(t), propertiesFace+".GetAll", BusName).Store(&got))
	reason := got["Reason"].Value().(string)
	assert.Equal(t, "   ää", reason[:7])
	assert.LessOrEqual(t, len(reason), maxText+3)
}

// On a bus that lets everything through.
func TestCallsThatAreNone(t *testing.T) {
	t.Parallel()
	system := on(t, bustest.Start(t, ""), newWatched(&daemon{})) // a call of it would panic
	conn := system.Connect(t)
	for name, c := range map[string]struct {
		path   string
		method string
		args   []any
		want   string
	}{
		"an object":            {"/", BusName + ".Check", nil, errNoObject},
		"properties elsewhere": {"/org", propertiesFace + ".GetAll", []any{BusName}, errNoObject},
		"a path beside ours":   {"/organ", introspectFace + ".Introspect", nil, errNoObject},
		"an interface":         {busPath, "a.b.Check", nil, errNoInterface},
		"a method":             {busPath, BusName + ".Frob", nil, errNoMethod},
		"no interface":         {busPath, "Frob", nil, errNoMethod},
		"a property":           {busPath, propertiesFace + ".Get", []any{BusName, "Frob"}, errNoProperty},
		"its interface":        {busPath, propertiesFace + ".Get", []any{"a.b", "State"}, errNoInterface},
		"all of an interface":  {busPath, propertiesFace + ".GetAll", []any{"a.b"}, errNoInterface},
		"a number":             {busPath, propertiesFace + ".Get", []any{int32(1), int32(2)}, errBadArgs},
		"too few":              {busPath, propertiesFace + ".GetAll", nil, errBadArgs},
		"setting":              {busPath, propertiesFace + ".Set", []any{BusName, "State", dbus.MakeVariant("x")}, errReadOnly},
		"of properties":        {busPath, propertiesFace + ".Frob", nil, errNoMethod},
		"of introspection":     {busPath, introspectFace + ".Frob", nil, errNoMethod},
		"of a peer":            {busPath, peerFace + ".Frob", nil, errNoMethod},
		"too large":            {busPath, BusName + ".Rollback", []any{[]string{strings.Repeat("x", 64<<10)}, false}, errTooMuch},
		"no list":              {busPath, BusName + ".Apply", []any{"velum", true}, errBadArgs},
		"as before 0.1.0":      {busPath, BusName + ".Apply", []any{[]string{"velum"}, false}, errBadArgs},
		"a time as a word":     {busPath, BusName + ".Hold", []any{[]string{"velum"}, false, "tomorrow", ""}, errBadArgs},
	} {
		err := conn.Object(BusName, dbus.ObjectPath(c.path)).CallWithContext(t.Context(), c.method, 0, c.args...).Err
		if assert.Error(t, err, name) {
			assert.Equal(t, c.want, errorName(t, err), name)
		}
	}
}

func TestIntrospectionLeadsToTheObject(t *testing.T) {
	t.Parallel()
	system := onBus(t, newWatched(&daemon{}))
	conn := system.ConnectAs(t, nobodysID)
	path := dbus.ObjectPath("/")
	for range 3 {
		node, err := introspect.Call(conn.Object(BusName, path))
		require.NoError(t, err)
		require.Len(t, node.Children, 1)
		path = dbus.ObjectPath(strings.TrimSuffix(string(path), "/") + "/" + node.Children[0].Name)
	}
	assert.EqualValues(t, busPath, path)
	node, err := introspect.Call(conn.Object(BusName, path))
	require.NoError(t, err)
	assert.Len(t, node.Interfaces, 4)
	var id string
	require.NoError(t, call(t, conn, peerFace+".GetMachineId").Store(&id))
	assert.Len(t, id, 32)
	require.NoError(t, call(t, conn, peerFace+".Ping").Err)
}

func signature(args []introspect.Arg, direction string) string {
	var out string
	for _, a := range args {
		if a.Direction == direction {
			out += a.Type
		}
	}
	return out
}

// What the object says of itself, what the bus lets through and what polkit is asked
// are of the same methods.
func TestTheInterfaceIsDescribedAsItIs(t *testing.T) {
	t.Parallel()
	var node introspect.Node
	require.NoError(t, xml.Unmarshal([]byte(introspection), &node))
	face := node.Interfaces[0]
	require.Equal(t, BusName, face.Name)
	var methods, ids, allowed []string
	for _, m := range face.Methods {
		if m.Name == "Allowed" { // it acts on nothing
			allowed = append(allowed, m.Name)
			continue
		}
		methods = append(methods, m.Name)
		ids = append(ids, actions[m.Name].id)
		assert.Equal(t, actions[m.Name].signature, signature(m.Args, "in"), m.Name)
	}
	assert.Len(t, methods, len(actions))
	values := new(Bus).properties(status.Status{})
	for _, p := range face.Properties {
		assert.Equal(t, p.Type, values[p.Name].Signature().String(), p.Name)
		assert.Equal(t, "read", p.Access, p.Name)
	}
	assert.Len(t, face.Properties, len(values))

	policy, err := os.ReadFile(shippedPolicy)
	require.NoError(t, err)
	var passed []string
	for _, match := range regexp.MustCompile(`send_interface="`+regexp.QuoteMeta(BusName)+`"\s+send_member="(\w+)"/>`).FindAllStringSubmatch(string(policy), -1) {
		passed = append(passed, match[1])
	}
	assert.ElementsMatch(t, append(methods, allowed...), passed)

	polkit, err := os.ReadFile("../../../packaging/polkit/" + BusName + ".policy")
	require.NoError(t, err)
	var config struct {
		Actions []struct {
			ID       string   `xml:"id,attr"`
			Defaults []string `xml:"defaults>allow_any"`
			Inactive []string `xml:"defaults>allow_inactive"`
			Active   []string `xml:"defaults>allow_active"`
		} `xml:"action"`
	}
	require.NoError(t, xml.Unmarshal(polkit, &config))
	var asked []string
	for _, a := range config.Actions {
		asked = append(asked, a.ID)
		for _, given := range slices.Concat(a.Defaults, a.Inactive, a.Active) {
			assert.Contains(t, []string{"auth_admin", "auth_admin_keep"}, given, "%s: for admins", a.ID)
		}
		assert.Len(t, slices.Concat(a.Defaults, a.Inactive, a.Active), 3)
	}
	assert.ElementsMatch(t, ids, asked)
}
