//! A tree for operations with a root.

use std::ops::Range;

/// The place of a rank in a binomial tree whose subtrees are consecutive ranks, for any root.
///
/// Aligned groups of 1, 2, 4, ... ranks merge in pairs. The head of a group is the root if it is in there,
/// otherwise the lowest rank; when two groups merge, the head of one becomes the child of the other.
/// So what is combined or collected on the way to the root is always next to what is there already, in
/// the order of the ranks. The depth is floor(log2 n), and one more if the root is not among the first
/// 2^floor(log2 n) ranks.
#[derive(Debug)]
pub(super) struct Tree {
    /// None on the root.
    pub(super) parent: Option<usize>,
    /// From the smallest subtree to the largest.
    pub(super) children: Vec<Child>,
    /// The ranks of the subtree. Its head is the lowest of them, or the root.
    pub(super) group: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) rank: usize,
    /// The ranks of its subtree.
    pub(super) group: Range<usize>,
}

impl Tree {
    pub(super) fn new(world: usize, rank: usize, root: usize) -> Tree {
        let head = |group: &Range<usize>| match group.contains(&root) {
            true => root,
            false => group.start,
        };
        let mut tree = Tree {
            parent: None,
            children: Vec::new(),
            group: rank..rank + 1,
        };
        let mut size = 1;
        while size < world {
            let start = (rank & !(size - 1)) ^ size;
            let sibling = start..world.min(start.saturating_add(size));
            size = size.saturating_mul(2);
            if sibling.is_empty() {
                continue;
            }
            let whole = tree.group.start.min(sibling.start)..tree.group.end.max(sibling.end);
            if head(&whole) != rank {
                tree.parent = Some(head(&sibling));
                break;
            }
            tree.children.push(Child {
                rank: head(&sibling),
                group: sibling,
            });
            tree.group = whole;
        }
        tree
    }
}
