//! The agent beside a real API server: `KUBECONFIG=... cargo xtask test cluster`. `netns_cluster` has the same tests.

egret_tests::cluster_tests!(egret_tests::anyapi::Server::given);
