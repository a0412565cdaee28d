//! Experiments of the lab.

use super::Daemon;
use crate::api::{self, ApiError};

fn not_yet<T>() -> Result<T, ApiError> {
    Err(ApiError::refused("experiments cannot be run by the daemon yet: use cenote lab"))
}

impl Daemon {
    /// See [`api::ListLabRecipes`].
    pub fn lab_recipes(&self, _: api::ListLabRecipes) -> Result<Vec<api::LabRecipe>, ApiError> {
        not_yet()
    }

    /// See [`api::ListLabPresets`].
    pub fn lab_presets(&self, _: api::ListLabPresets) -> Result<Vec<api::LabPreset>, ApiError> {
        not_yet()
    }

    /// See [`api::DraftLab`].
    pub fn lab_draft(&self, _: &api::DraftLab) -> Result<api::LabDraft, ApiError> {
        not_yet()
    }

    /// See [`api::PlanLab`].
    pub fn lab_plan(&self, _: &api::PlanLab) -> Result<api::LabPlan, ApiError> {
        not_yet()
    }

    /// See [`api::StartLab`].
    pub fn lab_start(&self, _: api::StartLab) -> Result<(), ApiError> {
        not_yet()
    }

    /// See [`api::ListLab`].
    pub fn lab_list(&self, _: api::ListLab) -> Result<Vec<api::LabExperiment>, ApiError> {
        not_yet()
    }

    /// See [`api::StopLab`].
    pub fn lab_stop(&self, _: &api::StopLab) -> Result<(), ApiError> {
        not_yet()
    }

    /// See [`api::ResumeLab`].
    pub fn lab_resume(&self, _: &api::ResumeLab) -> Result<(), ApiError> {
        not_yet()
    }

    /// See [`api::RemoveLab`].
    pub fn lab_remove(&self, _: &api::RemoveLab) -> Result<(), ApiError> {
        not_yet()
    }

    /// See [`api::ReportLab`].
    pub fn lab_report(&self, _: &api::ReportLab) -> Result<api::LabReport, ApiError> {
        not_yet()
    }

    /// See [`api::CompareLab`].
    pub fn lab_compare(&self, _: &api::CompareLab) -> Result<api::LabComparison, ApiError> {
        not_yet()
    }

    /// See [`api::ApplyLab`].
    pub async fn lab_apply(&self, _: api::ApplyLab) -> Result<api::LabChanged, ApiError> {
        not_yet()
    }

    /// See [`api::RevertLab`].
    pub async fn lab_revert(&self, _: api::RevertLab) -> Result<api::LabReverted, ApiError> {
        not_yet()
    }

    /// See [`api::AdviseLab`].
    pub fn lab_advise(&self, _: &api::AdviseLab) -> Result<Vec<api::LabAdvice>, ApiError> {
        not_yet()
    }

    /// See [`api::ListLabLayouts`].
    pub fn lab_layouts(&self, _: &api::ListLabLayouts) -> Result<Vec<api::LabLayout>, ApiError> {
        not_yet()
    }
}
