// What the programs share that ask cosign's own code.
module github.com/kubic-project/image-update-agent/tools/modules/verifies

go 1.26.0
