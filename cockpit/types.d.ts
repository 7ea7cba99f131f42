// SPDX-License-Identifier: Apache-2.0
// What only an editor and `tsc` read: see tsconfig.json.

interface Window {
    cockpit: any; // cockpit.js has no types
}
