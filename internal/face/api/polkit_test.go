// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// check is polkit's CheckAuthorization, as its manual has it.
type check func(s subject, action string, details map[string]string, flags uint32, cancellation string) (result, *dbus.Error)

// polkit runs an authority on the bus.
func polkit(t *testing.T, system bustest.Bus, f check) {
	t.Helper()
	system.Serve(t, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
		"org.freedesktop.PolicyKit1.Authority", map[string]any{"CheckAuthorization": f})
}

// acts is a daemon that counts what it was told to do.
func acts() (*watched, *atomic.Int32) {
	var n atomic.Int32
	apply := func([]string, func(status.Progress)) ([]status.Outcome, error) {
		n.Add(1)
		return []status.Outcome{{Result: status.ResultApplied}}, nil
	}
	held := func() ([]string, error) { n.Add(1); return []string{"*"}, nil }
	return newWatched(&daemon{
		apply: apply, check: func(func(status.Progress)) (status.Status, error) { n.Add(1); return status.Status{}, nil },
		hold:   func([]string, bool, string, time.Time) ([]string, error) { return held() },
		resume: func([]string, bool) ([]string, error) { return held() },
	}), &n
}

// everyAction are calls of all methods that act.
var everyAction = map[string][]any{
	"Check": {}, "Apply": {[]string{}, true, false, noneShown}, "Rollback": {[]string{}, true},
	"Hold": {[]string{}, true, uint64(0), ""}, "Resume": {[]string{}, true}, "ReleaseLock": {}, "ForgetCatalog": {},
	"EnableLocalRegistry": {"registry.suse.com", true}, "DisableLocalRegistry": {"registry.suse.com"},
}

// busErrorName is the name that an error of ours has on the bus.
func busErrorName(t *testing.T, err error) string {
	t.Helper()
	var e busError
	require.ErrorAs(t, err, &e)
	return e.name
}

// interactively calls a method as a user who can be asked for a password; the
// library's own calls drop that flag.
func interactively(conn *dbus.Conn, method string, args ...any) *dbus.Call {
	m := &dbus.Message{Type: dbus.TypeMethodCall, Flags: dbus.FlagAllowInteractiveAuthorization, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(BusName), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(busPath)),
		dbus.FieldInterface: dbus.MakeVariant(BusName), dbus.FieldMember: dbus.MakeVariant(method),
	}}
	if len(args) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	return <-conn.Send(m, make(chan *dbus.Call, 1)).Done
}

// Where polkit is not installed root acts, and nobody else.
func TestWithoutPolkitRootAlone(t *testing.T) {
	t.Parallel()
	d, done := acts()
	system := onBus(t, d)
	user, root := system.ConnectAs(t, nobodysID), system.Connect(t)
	require.Len(t, everyAction, len(actions))
	for method, args := range everyAction {
		err := call(t, user, method, args...).Err
		assert.Equal(t, errDenied, errorName(t, err), method)
		assert.ErrorContains(t, err, "only root may do this: polkit, which could allow "+actions[method].id+", is not running")
		assert.Zero(t, done.Load())
		require.NoError(t, call(t, root, method, args...).Err)
		assert.Equal(t, int32(1), done.Swap(0))
	}
}

// Polkit is asked for each method of each user, by the name that the bus has given
// them, and what it says is done.
func TestPolkitDecides(t *testing.T) {
	t.Parallel()
	d, done := acts()
	system := onBus(t, d)
	user, root := system.ConnectAs(t, nobodysID), system.Connect(t)
	type question struct {
		who    subject
		action string
		flags  uint32
	}
	asked := make(chan question, 1)
	type answer struct {
		result
		err *dbus.Error
	}
	say := make(chan answer, 1)
	polkit(t, system, func(s subject, a string, _ map[string]string, f uint32, _ string) (result, *dbus.Error) {
		asked <- question{s, a, f}
		answer := <-say
		return answer.result, answer.err
	})
	yes := answer{result: result{Authorized: true}}
	for method, args := range everyAction {
		require.NoError(t, call(t, root, method, args...).Err)
		assert.Empty(t, asked, "root is not asked about")
		done.Store(0)
		for name, c := range map[string]struct {
			say  answer
			want string
		}{
			"no":         {answer{}, errDenied},
			"a password": {answer{result: result{Challenge: true}}, errNeedsInteraction},
			"an error":   {answer{result{Authorized: true}, dbus.NewError("org.freedesktop.PolicyKit1.Error.Failed", []any{"x"})}, errDenied},
		} {
			say <- c.say
			assert.Equal(t, c.want, errorName(t, call(t, user, method, args...).Err), name)
			<-asked
		}
		assert.Zero(t, done.Load(), method)
		who := subject{"system-bus-name", map[string]dbus.Variant{"name": dbus.MakeVariant(user.Names()[0])}}
		say <- yes
		require.NoError(t, call(t, user, method, args...).Err)
		assert.Equal(t, int32(1), done.Swap(0))
		assert.Equal(t, question{who, actions[method].id, 0}, <-asked, "nobody is asked for a password who has not said so")
		say <- yes
		require.NoError(t, interactively(user, method, args...).Err)
		assert.Equal(t, question{who, actions[method].id, 1}, <-asked)
	}
	assert.Equal(t, BusErrorInvalidArgs, errorName(t, call(t, user, "Apply", []string{"\x01"}, false, false, noneShown).Err))
	assert.Empty(t, asked, "nobody is asked about what cannot be done")
}

// A polkit that says nothing is a no.
func TestASilentPolkit(t *testing.T) {
	t.Parallel()
	d, done := acts()
	system := bustest.System(t, shippedPolicy, polkitPolicy)
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	polkit(t, system, func(subject, string, map[string]string, uint32, string) (result, *dbus.Error) {
		<-free
		return result{Authorized: true}, nil
	})
	log := showWith(t, system.Address, d, time.Second)
	until(t, "on the bus", func() bool { return log.count("joined the system bus") == 1 })
	user := system.ConnectAs(t, nobodysID)
	for _, err := range []error{call(t, user, "Check").Err, interactively(user, "Check").Err} {
		assert.Equal(t, errDenied, errorName(t, err))
		assert.ErrorContains(t, err, "no answer in time")
	}
	assert.Zero(t, done.Load())
}

// A bus that is started anew begins to count its names anew: who has a name there now
// is not who has called.
func TestANameOfAnEarlierBusIsNobodys(t *testing.T) {
	t.Parallel()
	system := bustest.System(t, shippedPolicy)
	service, err := bus.Join(t.Context(), system.Address, BusName)
	require.NoError(t, err)
	t.Cleanup(service.Close)
	user := system.ConnectAs(t, nobodysID)
	user.Object(BusName, busPath).Go(BusName+".Check", 0, make(chan *dbus.Call, 1))
	asked, err := service.Next()
	require.NoError(t, err)
	uid, err := newAuthority(system.Address).allows(t.Context(), asked, "a.b", func() {})
	require.Error(t, err)
	require.Equal(t, uint32(nobodysID), uid)

	system.Stop()
	system.Again(t)
	for name := ""; name != asked.Sender; {
		name = system.Connect(t).Names()[0]
		require.LessOrEqual(t, len(name), len(asked.Sender), "root has got the caller's name")
	}
	_, err = newAuthority(system.Address).allows(t.Context(), asked, "a.b", func() {})
	assert.Equal(t, errDenied, busErrorName(t, err))
}

// Users who do not type in their passwords leave room for root.
func TestOpenDialogsAreBounded(t *testing.T) {
	t.Parallel()
	d, done := acts()
	system := onBus(t, d)
	user, root := system.ConnectAs(t, nobodysID), system.Connect(t)
	asked, free := make(chan struct{}, maxAsked), make(chan struct{})
	polkit(t, system, func(subject, string, map[string]string, uint32, string) (result, *dbus.Error) {
		asked <- struct{}{}
		<-free
		return result{Authorized: true}, nil
	})
	answers := make(chan *dbus.Call, maxAsked)
	for range maxAsked {
		user.Object(BusName, busPath).Go(BusName+".Check", 0, answers)
	}
	for range maxAsked {
		<-asked
	}
	assert.Equal(t, errTooMuch, errorName(t, call(t, user, "Check").Err))
	require.NoError(t, call(t, root, "Check").Err)
	close(free)
	for range maxAsked {
		require.NoError(t, (<-answers).Err)
	}
	assert.Equal(t, int32(maxAsked+1), done.Load())
}

// Many users who may do nothing, and ask again and again, do not keep root out.
func TestWhoMayNothingKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	d, _ := acts()
	system := onBus(t, d)
	root := system.Connect(t)
	ctx, end := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer end()
	refused := make(chan struct{}, 1)
	for range 2 * maxClients {
		user := system.ConnectAs(t, nobodysID)
		users.Go(func() {
			for ctx.Err() == nil {
				_ = user.Object(BusName, busPath).CallWithContext(ctx, BusName+".Check", 0).Err // a no, each time
				select {
				case refused <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 20 {
		<-refused
		require.NoError(t, call(t, root, "Check").Err)
	}
}

// What the bus itself keeps from everybody but root.
func TestTheBusKeepsTheRestAway(t *testing.T) {
	t.Parallel()
	d, _ := acts()
	system := onBus(t, d)
	user := system.ConnectAs(t, nobodysID)
	_, err := user.RequestName(BusName, dbus.NameFlagReplaceExisting)
	assert.Equal(t, errDenied, errorName(t, err), "the name is root's")
	for name, method := range map[string]string{
		"setting": propertiesFace + ".Set", "another method": BusName + ".Frob", "another interface": "a.b.Check",
		"without interface": "Check",
	} {
		err := user.Object(BusName, busPath).CallWithContext(t.Context(), method, 0).Err
		assert.Equal(t, errDenied, errorName(t, err), name)
	}
}

// asker is a daemon that remembers who has asked it.
func asker() (*daemon, <-chan status.Actor) {
	asked := make(chan status.Actor, 1)
	return &daemon{
		context: func(ctx context.Context) { asked <- status.ActorOf(ctx) },
		check:   func(func(status.Progress)) (status.Status, error) { return status.Status{SchemaVersion: 1}, nil },
	}, asked
}

func TestTheDaemonKnowsThePeerOfTheSocket(t *testing.T) {
	t.Parallel()
	d, asked := asker()
	_, err := patient(serve(t, false, d)).Check(t.Context(), nil)
	require.NoError(t, err)
	me, err := user.Current()
	require.NoError(t, err)
	want := status.Actor{Kind: status.ByPerson, Via: status.ViaSocket, UID: new(uint32(os.Getuid())), User: me.Username}
	assert.Equal(t, want, <-asked)
}

func TestTheDaemonKnowsTheCallerOnTheBus(t *testing.T) {
	t.Parallel()
	d, asked := asker()
	system := onBus(t, newWatched(d))
	polkit(t, system, func(subject, string, map[string]string, uint32, string) (result, *dbus.Error) {
		return result{Authorized: true}, nil
	})
	for uid, name := range map[uint32]string{0: "root", nobodysID: "nobody"} {
		require.NoError(t, call(t, system.ConnectAs(t, int(uid)), "Check").Err)
		assert.Equal(t, status.Actor{Kind: status.ByPerson, Via: status.ViaBus, UID: &uid, User: name}, <-asked)
	}
}

// The caller learns what it may do, and is asked for no password.
func TestAllowedNamesWhatTheCallerMayDo(t *testing.T) {
	t.Parallel()
	d, done := acts()
	system := onBus(t, d)
	user, root := system.ConnectAs(t, nobodysID), system.Connect(t)
	all := []string{
		"Apply", "Check", "DisableLocalRegistry", "EnableLocalRegistry", "ForgetCatalog", "Hold", "ReleaseLock", "Resume", "Rollback",
	}
	may := func(conn *dbus.Conn) (methods []string) {
		t.Helper()
		require.NoError(t, call(t, conn, "Allowed").Store(&methods))
		return methods
	}
	assert.Equal(t, all, may(root))
	assert.Equal(t, []string{}, may(user), "without polkit only root acts")
	polkit(t, system, func(_ subject, action string, _ map[string]string, flags uint32, _ string) (result, *dbus.Error) {
		assert.Zero(t, flags, "no password")
		return result{Authorized: strings.HasSuffix(action, "hold") || strings.HasSuffix(action, "resume"), Challenge: true}, nil
	})
	assert.Equal(t, []string{"Hold", "Resume"}, may(user))
	assert.Equal(t, all, may(root))
	var methods []string
	require.NoError(t, interactively(user, "Allowed").Store(&methods))
	assert.Equal(t, []string{"Hold", "Resume"}, methods)
	assert.Equal(t, errBadArgs, errorName(t, call(t, user, "Allowed", "x").Err))
	assert.Zero(t, done.Load(), "it acts on nothing")
}
