// Builds a part of the test node; see tools/setup. It stays at 2.6.2, so tools/pin does not know it. `go mod tidy`
// stumbles over what only the tests and the resumable uploads of that release import.
module github.com/kubic-project/image-update-agent/tools/modules/registry26

go 1.26.0

tool github.com/kubic-project/image-update-agent/tools/modules/registry26

require github.com/docker/distribution v2.6.2+incompatible

// That release is older than go.mod. These are of now, but redigo, whose later versions have another API.
require (
	github.com/Sirupsen/logrus v1.9.3 // indirect
	github.com/docker/libtrust v0.0.0-20160708172513-aabc10ec26b7 // indirect
	github.com/felixge/httpsnoop v1.0.3 // indirect
	github.com/garyburd/redigo v0.0.0-20150301180006-535138d7bcd7 // indirect
	github.com/gorilla/handlers v1.5.2 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

// logrus has changed its name since.
replace github.com/Sirupsen/logrus => github.com/sirupsen/logrus v1.9.3
