// SPDX-License-Identifier: Apache-2.0

package fleetlock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// application is the application id of this program, see machine-id(5). It never changes: another one would make every
// node another holder.
const application = "1f4b0e0b6a0d4c52a1d3a7f52c9e6b84"

// ID returns the node's id for lock servers: the machine's id for this application, as
//
//	systemd-id128 machine-id --app-specific=1f4b0e0b6a0d4c52a1d3a7f52c9e6b84
//
// prints it (sd_id128_get_machine_app_specific(3)). The machine's own id cannot be computed from it. A machineID that
// is not 32 hexadecimal digits, such as a host's name, is hashed the same way.
func ID(machineID string) string { return appSpecific(machineID, application) }

// zincati is the application id of Zincati: src/identity/mod.rs of github.com/coreos/zincati. Servers that look up the
// node by its id use this one (poseidon's fleetlock).
const zincati = "de35106b6ec24688b63afddaa156679b"

// ZincatiID returns the node's id as Zincati makes it:
//
//	systemd-id128 machine-id --app-specific=de35106b6ec24688b63afddaa156679b
func ZincatiID(machineID string) string { return appSpecific(machineID, zincati) }

func appSpecific(machineID, application string) string {
	machineID = strings.TrimSpace(machineID)
	key, err := hex.DecodeString(machineID)
	if err != nil || len(key) != 16 {
		key = []byte(machineID)
	}
	app, _ := hex.DecodeString(application)
	mac := hmac.New(sha256.New, key)
	mac.Write(app)
	id := mac.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x40 // a UUID of version 4
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}
