// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	repository = "r.io/velum"
	file       = "velum.yaml"
	place      = "container velum"
)

var (
	now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

	one, two = digest.FromString("1"), digest.FromString("2")
)

// pod returns a pod manifest of velum.yaml with containers "name=image"; "init:name=image" is an init container.
func pod(containers ...string) []node.PodFile {
	main, inits := "  containers:\n", "  initContainers:\n"
	for _, c := range containers {
		name, image, _ := strings.Cut(c, "=")
		if init, is := strings.CutPrefix(name, "init:"); is {
			inits += "  - name: " + init + "\n    image: " + image + "\n"
		} else {
			main += "  - name: " + name + "\n    image: " + image + "\n"
		}
	}
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: velum\nspec:\n" + main
	if inits != "  initContainers:\n" {
		text += inits
	}
	return []node.PodFile{{Name: file, Data: []byte(text)}}
}

// read returns the view of velum.yaml.
func read(t *testing.T, inv node.Inventory, rec record.Record, p policy.Policy) follow.PodView {
	t.Helper()
	views := follow.ReadPods(inv, rec, p)
	require.Len(t, views, 1)
	return views[0]
}

func TestFollowedTag(t *testing.T) {
	t.Parallel()
	manage := policy.Policy{Manage: map[string]bool{file: true}}
	follows := policy.Policy{Rule: func(string) policy.Rule { return policy.Rule{Follow: "9"} }}
	at := func(d digest.Digest) string { return repository + ":4.0.0@" + d.String() }
	for name, c := range map[string]struct {
		template, disk string // image references; empty: no file
		policy         policy.Policy
		want           string // the question
	}{
		"a template":                           {repository + ":4.0.0", "", policy.Policy{}, "r.io/velum:4.0.0"},
		"a pod manifest":                       {"", repository + ":4.0.0", policy.Policy{}, "r.io/velum:4.0.0 (as written)"},
		"a managed one":                        {"", repository + ":4.0.0", manage, "r.io/velum:4.0.0"},
		"the name of CRI":                      {"", "velum:1", policy.Policy{}, "docker.io/library/velum:1 (as written)"},
		"no tag":                               {"", repository, policy.Policy{}, "r.io/velum:latest (as written)"},
		"an apply has raised it":               {repository + ":4.0.0-rev1", repository + ":4.0.0-rev2", policy.Policy{}, "r.io/velum:4.0.0-rev2"},
		"a new system has raised it":           {repository + ":4.0.0-rev3", repository + ":4.0.0-rev2", policy.Policy{}, "r.io/velum:4.0.0-rev3"},
		"they cannot be compared":              {repository + ":4.0.0", repository + ":latest", policy.Policy{}, "r.io/velum:4.0.0"},
		"nor these":                            {repository + ":4.0.0", repository + ":v4.0.1", policy.Policy{}, "r.io/velum:4.0.0"},
		"another repository is on disk":        {repository + ":4.0.0", "m.io/velum:4.0.1", policy.Policy{}, "r.io/velum:4.0.0"},
		"a placeholder":                        {repository + ":__TAG__", "", policy.Policy{}, "r.io/velum"},
		"a placeholder with a value":           {repository + ":__TAG__", "", policy.Policy{Values: map[string]string{repository: "4.0.0"}}, "r.io/velum:4.0.0"},
		"a placeholder with a pod":             {repository + ":__TAG__", repository + ":4.0.0-rev1", policy.Policy{}, "r.io/velum:4.0.0-rev1"},
		"the configuration names it":           {repository + ":4.0.0", repository + ":4.0.0", follows, "r.io/velum:9"},
		"but not of what is not managed":       {"", repository + ":4.0.0", follows, "r.io/velum:4.0.0 (as written)"},
		"a rewrite":                            {repository + ":4.0.0", "", policy.Policy{Rewrites: []manifests.Rewrite{{From: "r.io", To: "m.io"}}}, "m.io/velum:4.0.0"},
		"no rewrite of what is not managed":    {"", repository + ":4.0.0", policy.Policy{Rewrites: []manifests.Rewrite{{From: "r.io", To: "m.io"}}}, "r.io/velum:4.0.0 (as written)"},
		"a digest is not followed":             {"", repository + "@" + one.String(), policy.Policy{}, ""},
		"nor one of a template":                {at(one), repository + ":4.0.0", policy.Policy{}, ""},
		"a digest that the record has lost":    {repository + ":4.0.0", at(one), policy.Policy{}, "r.io/velum:4.0.0"},
		"a digest that a person wrote beside:": {"", at(one), manage, ""},
	} {
		inv := node.Inventory{}
		if c.template != "" {
			inv.Templates = pod("velum=" + c.template)
		}
		if c.disk != "" {
			inv.PodManifests = pod("velum=" + c.disk)
		}
		v := read(t, inv, record.Record{}, c.policy)
		require.NoError(t, v.Err, name)
		got := ""
		if qs := follow.Questions([]follow.PodView{v}, c.policy); len(qs) > 0 {
			got = qs[0].String()
		}
		assert.Equal(t, c.want, got, name)
	}
	inv := node.Inventory{Templates: pod("a="+repository+":1", "b="+repository+":1", "c=r.io/a:2")}
	p := policy.Policy{Images: []release.Reference{{Repository: repository, Tag: "1"}}}
	var all []string
	for _, q := range follow.Questions(follow.ReadPods(inv, record.Record{}, p), p) {
		all = append(all, q.String())
	}
	assert.Equal(t, []string{"r.io/a:2", "r.io/velum:1", "r.io/velum:1 (as written)"}, all, "each once")
}

// A container is identified by its name and kind: a new first container, or a volume, is not mistaken for it.
func TestPlacesAreIdentifiedByName(t *testing.T) {
	t.Parallel()
	inv := node.Inventory{
		Templates:    pod("new="+repository+":5.0.0", "velum="+repository+":4.0.0", "init:setup="+repository+":3.0.0"),
		PodManifests: pod("velum=" + repository + ":4.0.0-rev2"),
	}
	v := read(t, inv, record.Record{}, policy.Policy{PullPolicy: "Always"})
	onDisk := map[string]string{}
	for _, w := range v.Wants {
		onDisk[node.PlaceOf(w.Image)] = w.OnDisk.Tag
		assert.Equal(t, "Always", w.PullPolicy)
	}
	assert.Equal(t, map[string]string{"container new": "", place: "4.0.0-rev2", "initContainer setup": ""}, onDisk)
}

func TestManagedPods(t *testing.T) {
	t.Parallel()
	locked := errors.New("a symlink")
	manage := policy.Policy{Manage: map[string]bool{file: true}}
	disk := pod("velum=" + repository + ":1")
	followed := []node.PodFile{{Name: file, Err: locked, Followed: disk[0].Data}}
	etcd := []node.PodFile{{Name: file, Data: []byte(strings.Replace(string(disk[0].Data), "  name: velum\nspec", "  name: etcd\n  namespace: kube-system\n  labels: {component: etcd, tier: control-plane}\nspec", 1))}}
	for name, c := range map[string]struct {
		inv     node.Inventory
		policy  policy.Policy
		managed bool
		why     string
		err     string
	}{
		"a template":                {node.Inventory{Templates: disk}, policy.Policy{}, true, "", ""},
		"of the control plane":      {node.Inventory{Templates: etcd}, policy.Policy{}, false, "velum.yaml belongs to the control plane and is not listed under manage", ""},
		"of it, listed":             {node.Inventory{Templates: etcd}, manage, true, "", ""},
		"no template":               {node.Inventory{PodManifests: disk}, policy.Policy{}, false, "velum.yaml has no template and is not listed under manage", ""},
		"listed":                    {node.Inventory{PodManifests: disk}, manage, true, "", ""},
		"kubelet follows it":        {node.Inventory{PodManifests: followed}, manage, false, "a symlink: the agent does not write such a file", ""},
		"in the way of a template":  {node.Inventory{Templates: disk, PodManifests: followed}, manage, false, "", "a symlink"},
		"a broken template":         {node.Inventory{Templates: []node.PodFile{{Name: file, Data: []byte("{")}}}, manage, false, "", "template: "},
		"a broken file":             {node.Inventory{PodManifests: []node.PodFile{{Name: file, Data: []byte("{")}}}, manage, false, "", "pod manifest: "},
		"a broken file, a template": {node.Inventory{Templates: disk, PodManifests: []node.PodFile{{Name: file, Data: []byte("{")}}}, manage, false, "", "pod manifest: "},
	} {
		v := read(t, c.inv, record.Record{}, c.policy)
		if c.err != "" {
			require.ErrorContains(t, v.Err, c.err, name)
			continue
		}
		require.NoError(t, v.Err, name)
		assert.Equal(t, c.managed, v.Managed, name)
		if !c.managed {
			assert.Equal(t, c.why, v.Unmanaged(), name)
		}
	}
	assert.True(t, follow.IsControlPlane(manifests.RoleEtcd))
	assert.False(t, follow.IsControlPlane(manifests.RoleScheduler))
}

// A pod expected by the configuration or the record is reported as missing, whatever file kubelet ignores.
func TestIgnoredFiles(t *testing.T) {
	t.Parallel()
	directory := node.PodFile{Name: file, Err: errors.New("a directory"), PassedOver: true}
	for name, f := range map[string]node.PodFile{
		"a directory": directory, "another kind": {Name: file, Data: []byte("apiVersion: v1\nkind: List\n")}, "no manifest": {Name: "README", Data: []byte("read me")},
	} {
		require.Error(t, follow.PassedOver(f), name)
		assert.Empty(t, follow.ReadPods(node.Inventory{PodManifests: []node.PodFile{f}}, record.Record{}, policy.Policy{}), name)
	}
	require.NoError(t, follow.PassedOver(node.PodFile{Name: file, Err: errors.New("it cannot be read")}))
	require.NoError(t, follow.PassedOver(node.PodFile{Name: file, Data: []byte("{")}), "it looks like a broken pod manifest")
	require.NoError(t, follow.PassedOver(pod("velum=" + repository)[0]))
	inv := node.Inventory{PodManifests: []node.PodFile{directory}}
	for _, f := range []node.PodFile{directory, {Name: file, Data: []byte("kind: List\n")}, {Name: file, Data: []byte("\t: x")}} {
		inv.PodManifests[0] = f
		for _, rec := range []record.Record{
			{Wrote: record.Entries[digest.Digest]{file: one}}, {Good: record.Entries[record.Good]{file + "/velum": {}}},
		} {
			require.Error(t, read(t, inv, rec, policy.Policy{}).Err)
		}
		require.Error(t, read(t, inv, record.Record{}, policy.Policy{Manage: map[string]bool{file: true}}).Err)
	}
}

// kubelet runs one pod per name, from the file that it read last.
func TestPodsOfTwoFiles(t *testing.T) {
	t.Parallel()
	a, b := pod("velum=" + repository + ":1")[0], pod("velum=" + repository + ":1")[0]
	b.Name = "copy.yaml"
	views := follow.ReadPods(node.Inventory{PodManifests: []node.PodFile{a, b}}, record.Record{}, policy.Policy{})
	for _, v := range views {
		assert.True(t, v.Duplicate.Is(), v.File)
	}
	views = follow.ReadPods(node.Inventory{PodManifests: []node.PodFile{b}, Templates: []node.PodFile{a}}, record.Record{}, policy.Policy{})
	assert.True(t, views[1].Duplicate.Is(), "a template beside a file that a person wrote")
	other := a
	other.Data = []byte(strings.Replace(string(a.Data), "name: velum\nspec", "name: other\nspec", 1))
	other.Name = "other.yaml"
	for _, v := range follow.ReadPods(node.Inventory{PodManifests: []node.PodFile{a, other}, Templates: []node.PodFile{a}}, record.Record{}, policy.Policy{}) {
		assert.False(t, v.Duplicate.Is(), v.File)
	}
}

func TestPinnedPods(t *testing.T) {
	t.Parallel()
	pinned := pod("velum=" + repository + ":4.0.0-rev1@" + one.String())
	o := record.Override{Images: map[string]record.PinnedImage{place: {Pin: release.Pin{Repository: repository, Digest: one}, Follow: "4.0.0", Always: true}}}
	rec := record.Record{Overrides: record.Entries[record.Override]{file: o}}
	manage := policy.Policy{Manage: map[string]bool{file: true}}
	v := read(t, node.Inventory{PodManifests: pinned}, rec, manage)
	require.NoError(t, v.Err)
	assert.Equal(t, "4.0.0", v.Wants[0].OnDisk.Tag)
	assert.Equal(t, "r.io/velum:4.0.0", v.Wants[0].Ask.String())
	_, is := v.PinnedAt(v.Wants[0].Image)
	assert.True(t, is)
	back, err := v.Unbound()
	require.NoError(t, err)
	assert.Contains(t, string(back.Data), "image: r.io/velum:4.0.0\n    imagePullPolicy: Always\n")
	edited := read(t, node.Inventory{PodManifests: pod("velum=" + repository + ":4.0.0")}, rec, manage)
	_, is = edited.PinnedAt(edited.Wants[0].Image)
	assert.False(t, is, "an edit ends it")
	o.Pending, o.From = true, "another"
	rec.Overrides = record.Entries[record.Override]{file: o}
	assert.Empty(t, read(t, node.Inventory{PodManifests: pinned}, rec, manage).Override.Images, "of a file that was edited since")

	lost := read(t, node.Inventory{PodManifests: pinned, Templates: pod("velum=" + repository + ":4.0.0")}, record.Record{}, policy.Policy{})
	at, is := lost.PinnedAt(lost.Wants[0].Image)
	assert.True(t, is, "the record was lost")
	assert.Equal(t, one, at.Digest)

	lists := catalog.Listing{Catalog: "r.io/catalog:prod"}
	bound := read(t, node.Inventory{PodManifests: pinned, Templates: pod("velum=" + repository + ":4.0.0"), Catalog: lists}, record.Record{}, policy.Policy{})
	assert.Equal(t, one, bound.Bound[place].Digest)
	assert.Empty(t, bound.Override.Images)
	person := read(t, node.Inventory{PodManifests: pinned, Catalog: lists}, record.Record{}, manage)
	assert.Empty(t, person.Bound, "a digest that the agent did not write is a person's")
	ours := record.Record{Bound: record.Entries[map[string]digest.Digest]{file: {place: one}}}
	assert.Len(t, read(t, node.Inventory{PodManifests: pinned, Catalog: lists}, ours, manage).Bound, 1)
}

// A broken image record should name the running release, or else the last known good one.
func TestBrokenTags(t *testing.T) {
	t.Parallel()
	broken := node.HeldImage{Name: repository + ":4.0.0", NotImage: "text/html"}
	inv := node.Inventory{
		PodManifests: pod("velum=" + repository + ":4.0.0"), Held: []node.HeldImage{broken, {Digest: one}, {Digest: two}},
		Containers: []node.Container{{Pod: "velum-n", Namespace: "default", Name: "velum", Running: true, Image: "c", Digests: []digest.Digest{one}}},
	}
	good := record.Record{Good: record.Entries[record.Good]{file + "/velum": {Repository: repository, Running: two}}}
	denied := record.Record{Good: good.Good, Denied: record.Entries[record.Denial]{release.Key(repository, one): {}}}
	idle := inv
	idle.Containers = nil
	for name, c := range map[string]struct {
		inv  node.Inventory
		rec  record.Record
		want digest.Digest
	}{
		"what runs":         {inv, good, one},
		"which is denied":   {inv, denied, two},
		"what ran well":     {idle, good, two},
		"nothing is known":  {idle, record.Record{}, ""},
		"it left the node":  {node.Inventory{PodManifests: inv.PodManifests, Held: []node.HeldImage{broken}}, good, ""},
		"of another source": {idle, record.Record{Good: record.Entries[record.Good]{file + "/velum": {Repository: "m.io/velum", Running: two}}}, ""},
	} {
		views := follow.ReadPods(c.inv, c.rec, policy.Policy{})
		assert.Equal(t, []follow.BrokenTag{{Record: broken, Repository: repository, Digest: c.want}}, follow.BrokenTags(c.inv, views, c.rec), name)
	}
	assert.Empty(t, follow.BrokenTags(node.Inventory{}, nil, good))
}

// Only a followed container of a pod manifest in kubelet's directory must run.
func TestContainersThatMustRun(t *testing.T) {
	t.Parallel()
	ended := func(code int32) *node.Container {
		return &node.Container{StartedAt: now, FinishedAt: now.Add(time.Second), ExitCode: code, Reason: "Error"}
	}
	waits := func(namespace, pod, reason string) []node.Waiting {
		return []node.Waiting{{Namespace: namespace, Pod: pod, Container: "velum", Reason: reason}}
	}
	early := func(d time.Duration) map[string]time.Time { return map[string]time.Time{file + "/velum": now.Add(d)} }
	absent := func(since time.Duration, starting bool) *status.Down {
		return &status.Down{Since: now.Add(since), Starting: starting, Absent: true}
	}
	for name, c := range map[string]struct {
		init, once bool
		container  *node.Container
		inv        node.Inventory
		want       *status.Down
	}{
		"it runs":                            {container: &node.Container{Running: true}},
		"an init container that was removed": {init: true},
		"an init container that succeeded":   {init: true, container: ended(0)},
		"an init container that failed":      {init: true, container: ended(1), want: &status.Down{Since: now.Add(time.Second), ExitCode: 1, Reason: "Error"}},
		"one that succeeded":                 {container: ended(0), want: &status.Down{Since: now.Add(time.Second), Reason: "Error"}},
		"one that need not run again":        {once: true, container: ended(0)},
		"it is missing":                      {want: absent(0, true)},
		"it was created only":                {container: &node.Container{}, want: absent(0, true)},
		"it is missing for minutes":          {inv: node.Inventory{Missing: early(-time.Minute)}, want: absent(-time.Minute, true)},
		"it is missing for too long":         {inv: node.Inventory{Missing: early(-5 * time.Minute)}, want: absent(-5*time.Minute, false)},
		"since a moment of a wrong clock":    {inv: node.Inventory{Missing: early(time.Hour)}, want: absent(0, true)},
		"kubelet says why": {inv: node.Inventory{Unstarted: waits("default", "velum-n", "ErrImagePull")}, want: &status.Down{
			Since: now, Absent: true, Reason: "ErrImagePull",
		}},
		"kubelet has just begun": {inv: node.Inventory{Unstarted: waits("default", "velum-n", "ContainerCreating")}, want: &status.Down{
			Since: now, Absent: true, Starting: true, Reason: "ContainerCreating",
		}},
		"kubelet says it of another pod":       {inv: node.Inventory{Unstarted: waits("default", "other-n", "ErrImagePull")}, want: absent(0, true)},
		"kubelet says it of another namespace": {inv: node.Inventory{Unstarted: waits("kube-system", "velum-n", "ErrImagePull")}, want: absent(0, true)},
	} {
		files := pod("velum=" + repository + ":1")
		v := read(t, node.Inventory{PodManifests: files}, record.Record{}, policy.Policy{})
		v.Was.Once = c.once
		w := v.Wants[0]
		if c.init {
			w.Image.Kind = manifests.KindInit
		}
		if c.container != nil {
			c.container.Pod, c.container.Namespace, c.container.Name = "velum-n", "default", "velum"
			c.inv.Containers = []node.Container{*c.container}
		}
		e, must := v.Expects(w, c.inv)
		assert.True(t, must, name)
		assert.Equal(t, c.want, e.Down(c.inv.ByPod([]string{"velum", "other"}), now), name)
	}
	for name, inv := range map[string]node.Inventory{
		"its template adds it":    {Templates: pod("velum=" + repository + ":1"), PodManifests: pod("other=" + repository + ":1")},
		"the pod is not there":    {Templates: pod("velum=" + repository + ":1")},
		"it follows nothing":      {PodManifests: pod("velum=" + repository + "@" + one.String())},
		"its template follows no": {Templates: pod("velum=" + repository + "@" + one.String()), PodManifests: pod("velum=" + repository + ":1")},
	} {
		v := read(t, inv, record.Record{}, policy.Policy{})
		_, must := v.Expects(v.Wants[0], inv)
		assert.False(t, must, name)
	}
}

func TestPullPolicyEdits(t *testing.T) {
	t.Parallel()
	with := func(p string) node.PodFile {
		f := pod("a="+repository+":1", "b="+repository+"@"+one.String())[0]
		f.Data = []byte(strings.ReplaceAll(string(f.Data), "    image:", "    imagePullPolicy: "+p+"\n    image:"))
		return f
	}
	assert.Equal(t, []status.Edit{{Container: "a", Field: status.EditPullPolicy, From: "Never", To: "Always"}}, follow.PullPolicyEdits(with("Never"), with("Always").Data))
	assert.Empty(t, follow.PullPolicyEdits(with("Never"), with("Never").Data))
	assert.Empty(t, follow.PullPolicyEdits(with("Never"), []byte("{")))
	assert.Equal(t, "2", follow.Higher("", "2", tags.Scheme{}))
}

func TestLocalRegistryFactsOfATag(t *testing.T) {
	t.Parallel()
	good := record.Entries[record.Good]{record.GoodKey(file, "velum"): {Repository: repository, Running: one}}
	override := func(pending bool, tag string) record.Entries[record.Override] {
		return record.Entries[record.Override]{file: {Pending: pending, Images: map[string]record.PinnedImage{
			place: {Pin: release.Pin{Repository: repository, Digest: two}, Follow: tag},
		}}}
	}
	for title, c := range map[string]struct {
		image string
		rec   record.Record
		want  localregistry.Followed
	}{
		"nothing is known": {image: repository + ":4", want: localregistry.Followed{}},
		"it ran well":      {repository + ":4", record.Record{Good: good}, localregistry.Followed{Good: one}},
		"another repository ran well": {image: repository + ":4", rec: record.Record{Good: record.Entries[record.Good]{
			record.GoodKey(file, "velum"): {Repository: repository + "/old", Running: one},
		}}},
		"a rollback is to be applied": {
			repository + ":4", record.Record{Overrides: override(true, "4")}, localregistry.Followed{Pending: two},
		},
		"a rollback is applied":                 {image: repository + ":4", rec: record.Record{Overrides: override(false, "4")}},
		"a rollback of another tag":             {image: repository + ":4", rec: record.Record{Overrides: override(true, "5")}},
		"a rollback, no tag is written":         {repository, record.Record{Overrides: override(true, "latest")}, localregistry.Followed{Pending: two}},
		"a rollback of another tag than latest": {image: repository, rec: record.Record{Overrides: override(true, "4")}},
	} {
		c.want.Reference = release.Reference{Repository: repository, Tag: "4"}
		if c.image == repository {
			c.want.Tag = "latest"
		}
		f := pod("velum=" + c.image)[0]
		f.Data = append(f.Data, "  volumes:\n  - name: velum\n    image: {reference: r.io/other:1}\n"...)
		inv := node.Inventory{PodManifests: []node.PodFile{f}}
		assert.Equal(t, []localregistry.Followed{c.want}, follow.LocalRegistryFacts(inv, c.rec, policy.Policy{}).Followed, title)
	}
}

func TestLocalRegistryFactsOfImages(t *testing.T) {
	t.Parallel()
	pin := release.Pin{Repository: repository, Digest: one}
	inv := node.Inventory{Held: []node.HeldImage{
		{Name: "pin/one", Digest: one, Pin: true, Complete: true, Repository: repository, MediaType: "m", Size: 7},
		{Name: "pin/two", Digest: two, Pin: true, Repository: repository},
		{Name: repository + ":4.1", Digest: two, Staged: true, Repository: repository},
		{Name: repository + ":4", Digest: one},
	}}
	rec := record.Record{
		Releases: record.Entries[release.Release]{release.Key(repository, one): {Tag: "4"}},
		Denied:   record.Entries[record.Denial]{release.Key(repository+"/copy", two): {PodManifest: "a.yaml", Reason: "it fell"}},
		Private:  record.Entries[bool]{repository: true},
	}
	f := follow.LocalRegistryFacts(inv, rec, policy.Policy{ServePrivate: true})
	assert.Equal(t, []localregistry.Image{{Pin: pin, MediaType: "m", Size: 7}}, f.Images)
	assert.Equal(t, map[string]digest.Digest{repository + ":4": one}, f.Pulled)
	assert.Equal(t, release.Release{Tag: "4"}, f.Known(pin))
	assert.True(t, f.ServePrivate)
	assert.True(t, f.Private[repository])
	reason, denied := f.Denied(two)
	assert.True(t, denied)
	assert.Equal(t, "a.yaml: it fell", reason)
	_, denied = f.Denied(one)
	assert.False(t, denied)
}
