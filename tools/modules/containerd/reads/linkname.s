// SPDX-License-Identifier: Apache-2.0

// Go asks for a file of assembly where functions have no body.
