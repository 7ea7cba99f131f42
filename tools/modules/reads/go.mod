// What the programs share that ask a neighbour's own code.
module github.com/kubic-project/image-update-agent/tools/modules/reads

go 1.26.6
