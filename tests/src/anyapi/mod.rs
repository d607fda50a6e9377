//! Tests that hold against any API server of Kubernetes: real objects by a real kubectl, a real agent for a node that does
//! not exist, and what that agent compiles. No node, kubelet or CNI is needed, and no packet is sent.
//!
//! ```text
//!  cases ──> scene   the agent, and what it says           server  kubectl, and the server it asks:
//!              └ scope   namespace, objects, their end        └ given by a kubeconfig, or the double
//! ```
//! [`crate::cluster_tests`] makes tests of all of [`cases`]: once for the server that is given (`cargo xtask test cluster`), once
//! for the double, so that they never rot. They know the server by its kubeconfig alone.
//!
//! On a server that others use: everything made stands in namespaces of the tests' own or bears their name, and is removed
//! at the end. The agent asks as a user of its own who may read what agents read, but write only there.

pub mod cases;
mod scene;
mod scope;
mod server;

pub use scene::Scene;
pub use scope::Scope;
pub use server::Server;

/// Makes a test of each case; `$start` gives the server, or `None` if there is none.
#[macro_export]
macro_rules! cluster_tests {
    ($start:path) => {
        $crate::cluster_tests!(
            $start: identities_come_from_labels a_label_change_re_identifies_within_a_second
            services_stand_for_their_backends a_selected_pod_is_denied_what_nothing_allows
            policies_by_name_are_compiled policies_of_the_admin_tier_are_compiled
            a_bad_object_is_told_and_says_so_itself what_is_deleted_is_gone
        );
    };
    ($start:path: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                if let Some(server) = $start() {
                    $crate::anyapi::cases::$case(&server);
                }
            }
        )*
    };
}
