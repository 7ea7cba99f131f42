// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

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
